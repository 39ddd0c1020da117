"""A whole server over real sockets: what each kind of client sees, and how a run ends."""

import gc
import os
import socket
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from plugrl_server.serving.server import TrainingServer
from websockets.exceptions import InvalidStatus

RESYNC = "1001 plugrl-server-resync"
STOP = "1001 plugrl-server-stop"
INTERNAL_ERROR = "1011 Internal server error."


def get(server, path, timeout=5):
    """Status and body of a plain GET."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}{path}", timeout=timeout) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


class Gate:
    """Something in the algorithm that blocks until the test lets it go on."""

    def __init__(self):
        self.entered, self.opened = threading.Event(), threading.Event()

    def pass_through(self):
        self.entered.set()
        assert self.opened.wait(20)


# The exchange --------------------------------------------------------------------------------------------------------


def test_metadata_comes_first_and_then_actions_answer_infers(serve, join, fakes):
    server = serve(fakes.algorithm())
    client = join(server)
    assert client.metadata["message_type"] == "metadata"
    assert client.metadata["data"]["protocol_version"] == 1
    assert client.metadata["data"]["features"] == ["reuse-feedback-obs", "declare-spaces"]
    data = client.ask((4, 7))
    assert data["env_ids"].tolist() == [4, 7]
    assert data["action"].shape == (2, 2, 3)
    assert data["action"][1, :, 0].tolist() == np.float32([0.1, 1.1]).tolist()  # time-major


def test_transitions_are_stored_as_they_were_sent(serve, join, fakes):
    server = serve(fakes.algorithm())
    client = join(server)
    client.exchange((4, 7), [1.0, 2.0], [3.0, 4.0], rewards=[5.0, 6.0])
    client.ask()
    rows = server.algorithm.stored
    assert [row["obs"]["states"]["obs"][0, 0] for row in rows] == [1.0, 2.0]
    assert [row["next_obs"]["states"]["obs"][0, 0] for row in rows] == [3.0, 4.0]
    assert [row["reward"] for row in rows] == [5.0, 6.0]


def test_an_observation_is_acted_on_again_without_being_sent_again(serve, join, fakes):
    """SPEC 10.1, with one env of two reused."""
    server = serve(fakes.algorithm())
    client = join(server)
    client.exchange((4, 7), [1.0, 2.0], [3.0, 4.0])
    data = client.ask((7, 4), values=[5.0], reuse=np.array([False, True]))
    assert data["env_ids"].tolist() == [7, 4]
    client.send(client.feedback((7, 4), [6.0, 7.0]))
    client.ask((4, 7), values=[], data=client.observation([]), reuse=np.array([True, True]))
    rows = server.algorithm.stored
    assert [row["obs"]["states"]["obs"][0, 0] for row in rows] == [1.0, 2.0, 5.0, 3.0]
    assert [row["next_obs"]["states"]["obs"][0, 0] for row in rows] == [3.0, 4.0, 6.0, 7.0]


def test_an_observation_that_is_not_held_is_refused_and_nobody_else_notices(serve, join, fakes):
    server = serve(fakes.algorithm())
    liar, honest = join(server), join(server)
    honest.exchange((0,), [1.0])
    liar.exchange((0,), [2.0], terminated=[True])
    liar.send(liar.infer((0,), data=liar.observation([]), reuse=np.array([True])))
    assert liar.ending() == RESYNC
    assert honest.ask((0,), data=honest.observation([]), reuse=np.array([True]))["env_ids"].tolist() == [0]


def test_a_reused_observation_that_is_not_finite_is_refused(serve, join, fakes):
    """Lesson 3: the feedback's row is discarded, and no policy acts on it either."""
    server = serve(fakes.algorithm())
    client = join(server)
    client.exchange((0,), [1.0], [np.nan])
    client.send(client.infer((0,), data=client.observation([]), reuse=np.array([True])))
    assert client.ending() == RESYNC
    server.until(lambda: len(server.algorithm.discarded) == 1)


def test_an_exchange_never_takes_a_delayed_ack(serve, join, fakes):
    """TCP_NODELAY: feedback has no reply, so with Nagle's algorithm every exchange would take 40 ms and more."""
    client = join(serve(fakes.algorithm()))
    for _ in range(5):
        client.exchange()
    times = []
    for _ in range(30):
        started = time.perf_counter()
        client.exchange()
        times.append(time.perf_counter() - started)
    assert sorted(times)[15] < 0.03


def test_messages_over_a_mebibyte_are_welcome_both_ways(serve, join, fakes):
    """SPEC 1.1, lesson 14."""
    wide = fakes.algorithm()
    wide.infer = lambda obs: (
        np.zeros((len(obs["text"]), 1, 300_000), np.float32),
        {"ticket": np.zeros((len(obs["text"]), 1))},
    )
    client = join(serve(wide), width=150_000)
    data = client.exchange((0, 1))
    assert data["action"].nbytes == 2 * 1_200_000
    client.ask()
    assert len(wide.stored) == 2


def test_a_message_over_the_servers_cap_is_refused_with_1009(serve, join, fakes):
    server = serve(fakes.algorithm(), max_frame=10_000)
    client, other = join(server, width=2000), join(server)
    client.send(client.infer())
    assert client.ending().startswith("1009")
    other.exchange()


def test_a_client_whose_answer_would_be_over_the_cap_is_refused_and_the_run_goes_on(serve, join, fakes, caplog):
    server = serve(fakes.algorithm(), max_frame=5_000)
    client, other = join(server, width=1), join(server, width=1)
    client.send(client.infer(range(160)))  # 25 bytes an env, and its answer 32
    assert client.ending() == "1009 frame over the size cap"
    assert "actions of 160 envs: frame: expected at most 5000 bytes, got 5" in caplog.text
    assert other.exchange(range(100))["action"].shape == (2, 100, 3)


def test_every_connection_numbers_its_envs_by_itself(serve, join, fakes):
    server = serve(fakes.algorithm())
    one, two = join(server), join(server)
    one.ask((0,), values=[1.0])
    two.ask((0,), values=[2.0])
    one.send(one.feedback((0,), rewards=[1.0]))
    two.send(two.feedback((0,), rewards=[2.0]))
    one.ask()
    two.ask()
    pairs = {(row["obs"]["states"]["obs"][0, 0], row["reward"]) for row in server.algorithm.stored}
    assert pairs == {(1.0, 1.0), (2.0, 2.0)}


# Other clients' faults (lessons 1, 2 and 5) --------------------------------------------------------------------------


def test_one_clients_faults_do_not_reach_the_others(serve, join, fakes):
    server = serve(fakes.algorithm())
    honest = join(server)
    faults = [
        (b"\xc1", RESYNC),
        ("text", RESYNC),
        (lambda client: client.infer(env_indices=np.array([1, 1])), RESYNC),
        (lambda client: client.feedback(), RESYNC),
        (lambda client: client.infer((0,), [np.nan]), RESYNC),
    ]
    for fault, close in faults:
        liar = join(server)
        liar.send(fault(liar) if callable(fault) else fault)
        assert liar.ending() == close
        honest.exchange()
    honest.ask()
    assert len(server.algorithm.stored) == len(faults)
    assert not server.events.named("warned")


def test_an_idle_connection_blocks_nobody(serve, join, fakes):
    """Lesson 5: a connect that never speaks, and a client that stopped in the middle of an exchange."""
    server = serve(fakes.algorithm(), mini_infer_batch_size=8, infer_wait_ms=5)
    with socket.create_connection(("127.0.0.1", server.port)):
        join(server)
        frozen = join(server)
        frozen.ask()
        client = join(server)
        started = time.perf_counter()
        for _ in range(10):
            client.exchange()
        assert time.perf_counter() - started < 5


def test_a_frozen_client_is_evicted(serve, fakes):
    """Lesson 5: nothing answers the pings of a stopped process."""
    server = serve(fakes.algorithm(), ping_interval=0.05, ping_timeout=0.1, close_timeout=0.1)
    with socket.create_connection(("127.0.0.1", server.port)) as frozen:
        frozen.sendall(
            b"GET / HTTP/1.1\r\nHost: here\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        )
        server.until(lambda: server.events.named("connected"))
        server.until(lambda: server.events.named("disconnected"))
        assert server.server.connection_count == 0


def test_a_thousand_dropped_connections_leave_nothing_behind(serve, join, fakes):
    """Lesson 5: file descriptors, threads and memory are back at the baseline."""
    server = serve(fakes.algorithm())
    handshake = (
        b"GET / HTTP/1.1\r\nHost: here\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )

    def drop(first):
        with socket.create_connection(("127.0.0.1", server.port)) as client:
            client.sendall(first)
            if first is handshake:
                client.recv(2000)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # reset, no FIN

    def measure():
        server.until(lambda: not server.server._endpoints)
        gc.collect()
        return len(list(Path("/proc/self/fd").iterdir())), threading.active_count()

    def resident():
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    for number in range(200):
        drop((handshake, b"", b"GET / HT")[number % 3])
    before, memory = measure(), resident()
    for number in range(1000):
        drop((handshake, b"", b"GET / HT")[number % 3])
    assert measure() == before
    assert resident() - memory < 20 * 2**20
    join(server).exchange()


# Keys and probes -----------------------------------------------------------------------------------------------------


def test_a_key_is_needed_before_the_upgrade(serve, join, fakes):
    """SPEC 1.2."""
    server = serve(fakes.algorithm(), api_key="s3cret")
    with pytest.raises(InvalidStatus) as refused:
        join(server)
    assert refused.value.response.status_code == 401
    join(server, additional_headers={"Authorization": "Api-Key s3cret"}).exchange()
    assert get(server, "/healthz") == (200, "ok\n")


def test_the_probes_answer(serve, join, fakes):
    server = serve(fakes.source(make=lambda declaration, observation: fakes.algorithm()))
    assert get(server, "/healthz") == (200, "ok\n")
    assert get(server, "/readyz") == (200, "waiting-for-client\n")
    client = join(server)
    client.exchange()
    client.ask()
    assert get(server, "/readyz") == (200, "ready\n")
    status, metrics = get(server, "/metrics")
    assert status == 200
    assert "plugrl_connections 1.0" in metrics
    assert "plugrl_exchanges_total 2.0" in metrics
    assert get(server, "/nothing")[0] == 404


# Long operations (lessons 7 and 8) -----------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["infer", "learn_impl"])
def test_the_loop_goes_on_while_the_algorithm_is_busy(serve, join, fakes, place):
    """Lesson 7: new clients are greeted, pings answered and probes served."""
    gate = Gate()
    algorithm = fakes.algorithm(fill=1)
    real = getattr(algorithm, place)

    def slow(*args):
        gate.pass_through()
        return real(*args)

    setattr(algorithm, place, slow)
    server = serve(algorithm)
    client = join(server)
    client.send(client.infer())
    if place == "learn_impl":
        client.receive()
        client.send(client.feedback())
    assert gate.entered.wait(5)
    started = time.perf_counter()
    assert get(server, "/healthz") == (200, "ok\n")
    late = join(server)
    assert client.socket.ping().wait(1)
    assert time.perf_counter() - started < 1
    late.send(late.infer())
    gate.opened.set()
    assert late.receive()["message_type"] == "action"


def test_a_build_that_takes_long_makes_others_wait_and_readyz_say_so(serve, join, fakes):
    """SPEC 1.3 and 10.2: ready only after the warm-up, which is part of the build."""
    gate = Gate()

    def make(declaration, observation):
        gate.pass_through()
        return fakes.algorithm()

    server = serve(fakes.source(make=make))
    first, second = join(server), join(server)
    first.send(first.infer())
    assert gate.entered.wait(5)
    second.send(second.infer())
    assert get(server, "/readyz") == (503, "building\n")
    assert "action_horizon" not in join(server).metadata["data"]
    gate.opened.set()
    assert first.receive()["message_type"] == second.receive()["message_type"] == "action"
    assert join(server).metadata["data"]["action_horizon"] == 2


def test_a_learn_step_longer_than_the_feedback_timeout_closes_nobody(serve, join, fakes):
    """Lesson 8."""
    gate = Gate()
    algorithm = fakes.algorithm(fill=1)
    real = algorithm.learn_impl

    def learn():
        gate.pass_through()
        return real()

    algorithm.learn_impl = learn
    server = serve(algorithm, feedback_wait_timeout=0.3)
    waiting, quick = join(server), join(server)
    waiting.ask()
    quick.exchange()
    assert gate.entered.wait(5)
    assert not threading.Event().wait(0.5)  # longer than the time-out
    assert server.server.connection_count == 2
    gate.opened.set()
    waiting.send(waiting.feedback())
    waiting.ask()


def test_an_action_without_feedback_is_closed_in_time(serve, join, fakes):
    """SPEC 7.3."""
    client = join(serve(fakes.algorithm(), feedback_wait_timeout=0.1))
    client.ask()
    assert client.ending() == "1001 Feedback timeout"


# The end (lesson 9) --------------------------------------------------------------------------------------------------


def test_a_finished_run_tells_everyone_saves_and_ends_with_0(serve, join, fakes):
    server = serve(fakes.algorithm(steps=2))
    worker, idle = join(server), join(server)
    worker.exchange((0, 1))
    assert worker.ending() == idle.ending() == STOP
    result = server.result()
    assert (result.reason, result.exit_code, result.error) == ("finished", 0, None)
    assert (result.global_step, result.saved) == (2, "checkpoints/2")
    assert [checkpoint.step for checkpoint in server.source.saved] == [2]
    assert result.accounting.total.stored == 2
    assert server.events.named("saved") == [("checkpoints/2",)]


def test_the_algorithm_is_closed_when_all_is_saved(serve, join, fakes):
    algorithm = fakes.algorithm(steps=1)
    server = serve(algorithm)
    saved = []
    algorithm.close = lambda: saved.append([checkpoint.step for checkpoint in server.source.saved])
    join(server).exchange()
    server.result()
    assert saved == [[1]]


def test_a_requested_stop_saves_and_gives_the_reason_back(serve, join, fakes):
    server = serve(fakes.algorithm())
    client = join(server)
    client.exchange()
    client.ask()
    server.server.request_stop("clients finished at step 1 of 9")
    assert client.ending() == STOP
    result = server.result()
    assert (result.reason, result.exit_code) == ("clients finished at step 1 of 9", 0)
    assert [checkpoint.step for checkpoint in server.source.saved] == [1]


def test_a_stop_without_saving_or_with_an_exit_code(serve, fakes):
    server = serve(fakes.algorithm())
    result = server.stop("a client failed", exit_code=1, save=False)
    assert (result.reason, result.exit_code, result.saved) == ("a client failed", 1, None)
    assert server.source.saved == []


def test_a_stop_before_anything_was_built_has_nothing_to_save(serve, fakes):
    result = serve(fakes.source(make=None)).stop()
    assert (result.reason, result.exit_code, result.global_step, result.saved) == ("interrupted", 0, 0, None)


def test_a_stop_asked_for_before_the_start_counts(fakes):
    import asyncio

    from plugrl_server.serving.server import ServingOptions

    server = TrainingServer(fakes.source(fakes.algorithm()), ServingOptions(port=0), fakes.events())
    server.request_stop("early")
    assert asyncio.run(asyncio.wait_for(server.run(), 5)).reason == "early"
    server.request_stop("late")  # and after the end it is no error
    server.stop_now()


def test_a_stop_lets_the_learn_step_in_flight_end(serve, join, fakes):
    gate = Gate()
    algorithm = fakes.algorithm(fill=1)
    real = algorithm.learn_impl

    def learn():
        gate.pass_through()
        return real()

    algorithm.learn_impl = learn
    server = serve(algorithm)
    client = join(server)
    client.exchange()
    assert gate.entered.wait(5)
    server.server.request_stop("interrupted")
    assert client.ending() == STOP
    gate.opened.set()
    server.result()
    assert server.source.saved[-1].model["weights"].tolist() == [1, 1]


def test_an_interrupted_learn_step_never_saves_a_half_updated_model(serve, join, fakes):
    """Lesson 9: bounded in time, and the state from before the step is what is saved."""
    gate = Gate()
    algorithm = fakes.algorithm(fill=1)

    def learn():
        algorithm.weights += 0.5
        gate.pass_through()
        return 0, {}

    algorithm.learn_impl = learn
    server = serve(algorithm, stop_grace=0.1)
    join(server).exchange()
    assert gate.entered.wait(5)
    result = server.stop()
    assert result.exit_code == 0
    assert [checkpoint.model["weights"].tolist() for checkpoint in server.source.saved] == [[0, 0]]
    gate.opened.set()


def test_stop_now_waits_for_nothing(serve, join, fakes):
    """Lesson 9: the second Ctrl-C."""
    gate = Gate()
    algorithm = fakes.algorithm(fill=1)

    def learn():
        gate.pass_through()
        return 0, {}

    algorithm.learn_impl = learn
    server = serve(algorithm, stop_grace=60)
    client = join(server)
    client.exchange()
    assert gate.entered.wait(5)
    server.server.request_stop("interrupted")
    assert client.ending() == STOP
    server.server.stop_now()
    result = server.result(5)
    assert (result.reason, result.exit_code) == ("interrupted", 1)
    assert "stopped at once" in result.error
    assert server.source.saved == []
    gate.opened.set()


def test_a_client_that_never_completes_the_closing_handshake_is_dropped(serve, fakes):
    server = serve(fakes.algorithm(), close_timeout=0.2)
    with socket.create_connection(("127.0.0.1", server.port)) as deaf:
        deaf.sendall(
            b"GET / HTTP/1.1\r\nHost: here\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        )
        server.until(lambda: server.events.named("connected"))
        server.server.request_stop("interrupted")
        assert server.result(5).exit_code == 0


@pytest.mark.parametrize("place", ["infer", "feedback", "learn_impl"])
def test_a_bug_in_the_algorithm_ends_the_run_without_details_on_the_wire(serve, join, fakes, place, caplog):
    """SPEC 7.4; lesson 9: a fatal error exits non-zero, after saving what is sound."""
    algorithm = fakes.algorithm(fill=1)

    def broken(*args, **options):
        raise ZeroDivisionError("secret details")

    setattr(algorithm, place, broken)
    server = serve(algorithm)
    client, bystander = join(server), join(server)
    client.send(client.infer())
    if place != "infer":
        client.receive()
        client.send(client.feedback())
    assert client.ending() == bystander.ending() == INTERNAL_ERROR
    result = server.result()
    assert (result.reason, result.exit_code) == ("failed", 1)
    call = place.removesuffix("_impl")
    assert result.error.startswith(f"the algorithm's {call} failed: ZeroDivisionError: secret details (test_server.py")
    assert len(server.source.saved) == 1
    assert f"last checkpoint: {result.saved}" in result.error
    assert not [record for record in caplog.records if record.exc_info and record.levelname != "DEBUG"]


def test_actions_that_are_not_finite_end_the_run_and_name_the_last_checkpoint(serve, join, fakes):
    """Lesson 3."""
    server = serve(fakes.algorithm(infer=lambda obs: (np.full((1, 1, 1), np.nan), {"ticket": np.zeros((1, 1))})))
    server.source.trainer.saved = "checkpoints/7"
    client = join(server)
    client.send(client.infer())
    assert client.ending() == INTERNAL_ERROR
    result = server.result()
    assert result.exit_code == 1
    assert result.error.endswith("the policy's actions are not finite; last checkpoint: checkpoints/7")
    assert server.source.saved == []


def test_a_last_state_that_cannot_be_saved_is_a_failure(serve, fakes):
    server = serve(fakes.algorithm())

    def full(checkpoint):
        raise OSError("no space left on device")

    server.source.trainer._save = full
    result = server.stop()
    assert (result.reason, result.exit_code) == ("failed", 1)
    assert "no space left on device" in result.error


def test_an_algorithm_that_fails_to_close_fails_the_run_after_it_was_saved(serve, fakes):
    def broken():
        raise RuntimeError("stuck")

    server = serve(fakes.algorithm(close=broken))
    result = server.stop()
    assert (result.reason, result.exit_code, len(server.source.saved)) == ("failed", 1, 1)
    assert result.error.startswith("the algorithm's close failed: RuntimeError: stuck (test_server.py, line")


def test_a_port_in_use_is_named(serve, fakes):
    """Lesson 28."""
    taken = serve(fakes.algorithm())
    source, events = fakes.source(fakes.algorithm()), fakes.events()
    import asyncio

    from plugrl_server.serving.server import ServingOptions

    result = asyncio.run(TrainingServer(source, ServingOptions(port=taken.port), events).run())
    assert (result.reason, result.exit_code) == ("failed", 1)
    assert f"cannot listen on 127.0.0.1:{taken.port} (--host, --port)" in result.error


def test_metadata_the_protocol_cannot_carry_is_the_operators_mistake(serve, fakes):
    server = serve(fakes.algorithm(), metadata={"features": "none"})
    result = server.result()
    assert result.error.startswith("--metadata: metadata.data.features")


# Accounting ----------------------------------------------------------------------------------------------------------


def test_rows_that_cross_the_stop_are_received_and_discarded(serve, join, fakes):
    """Every connection that ends by the closing handshake: received is what the client sent."""
    server = serve(fakes.algorithm(steps=3))
    clients = [join(server) for _ in range(3)]
    for client in clients:
        client.ask((0, 1))
    for client in clients:
        client.send(client.feedback((0, 1)))
    assert [client.ending() for client in clients] == [STOP] * 3
    accounting = server.result().accounting
    assert [count.received for count in accounting.connections] == [2, 2, 2]
    assert [count.ending for count in accounting.connections] == ["closed"] * 3
    assert accounting.total.received == 6
    assert accounting.total.stored + accounting.total.discarded.total() == 6
    assert accounting.total.stored == 4  # the second message took the count past 3
    assert "total" in accounting.table()
