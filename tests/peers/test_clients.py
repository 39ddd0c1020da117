"""What both reference clients do in a conversation, and when it ends."""

import signal
import socket

import numpy as np
import pytest
from plugrl_protocol.closing import FEEDBACK_TIMEOUT, INTERNAL_ERROR, RESYNC, STOP, Close, reject
from plugrl_protocol.codec import decode, encode
from plugrl_protocol.messages import Feedback, Infer
from plugrl_protocol.spaces import BoxSpace

from tests.peers.processes import Client, Ended, ended, reference_server
from tests.peers.referee import HORIZON, Script, Talk, coded, referee, until_resync, until_stop

REUSE = "reuse-feedback-obs"
DTYPES = "|b1 |i1 <i2 >i4 <i8 |u1 >u2 <u4 <u8 <f2 >f4 >f8"


def run(client: Client, script: Script, *options: str, mode: str = "--probe", status: int = 0) -> object:
    with referee(script) as judge:
        end = client.run(judge.port, mode, *options)
    assert end.status == status, end.output
    return judge.results[0]


def check_probe(played: list[tuple[Infer, Feedback]], envs: int) -> None:
    """Follow every env through its episodes (SPEC 8.1)."""
    time = dict.fromkeys(range(envs), 0)
    asked: set[int] = set()
    for infer, feedback in played:
        asked |= set(infer.env_indices.tolist())
        for row, env in enumerate(feedback.env_indices.tolist()):
            length = 3 + 2 * (env % 3)
            steps = min(HORIZON, length - time[env])
            time[env] += steps
            assert feedback.rewards[row] == steps
            assert feedback.observation.states["t"][row, 0] == time[env]
            expected = coded(np.array([env]))[steps - 1, 0]
            assert feedback.observation.states["a"][row].tolist() == expected.tolist()
            assert bool(feedback.terminated[row]) == (time[env] == length)
            assert not feedback.truncated[row]
            time[env] %= length
    assert asked == set(range(envs))


def actions_of(dtype: str) -> np.ndarray:
    """Three steps for one env, with numbers that only this dtype's reading gives back."""
    actions = np.array([[[0, 1]], [[1, 0]], [[1, 1]]]).astype(dtype)
    if actions.dtype.kind != "b":
        actions *= np.array(37, actions.dtype)
    return -actions if actions.dtype.kind in "if" else actions


class TestExchange:
    def test_follows_the_chunks_of_ragged_episodes(self, client: Client) -> None:
        played = run(client, until_stop(40), "--batch", "5")
        check_probe(played, 5)
        assert any(set(infer.env_indices) != set(feedback.env_indices) for infer, feedback in played)

    def test_counts_the_chunks_of_an_episode_in_step_ids(self, client: Client) -> None:
        for infer, feedback in run(client, until_stop(8), "--batch", "1"):
            at_start = not infer.observation.states["t"][0, 0]
            assert infer.step_ids.tolist() == feedback.step_ids.tolist()
            assert (infer.step_ids[0] == 0) == at_start

    def test_restarts_step_ids_and_asks_for_every_env_after_a_reconnect(self, client: Client) -> None:
        """Lesson 12."""
        with referee(until_resync(7), until_stop(6)) as judge:
            assert client.run(judge.port, "--probe").status == 0
        infer, _ = judge.results[1][0]
        assert infer.env_indices.tolist() == [0, 1, 2]
        assert infer.step_ids.tolist() == [0, 0, 0]

    def test_marks_an_episode_that_lived_through_a_reconnect(self, client: Client) -> None:
        """Lesson 12: its figures are told, and masked."""
        with referee(until_resync(1), until_stop(8)) as judge:
            assert client.run(judge.port, "--probe").status == 0
        episodes = [
            (int(env), bool(feedback.info["episode"]["mask"][row]))
            for _, feedback in judge.results[1]
            for row, env in enumerate(feedback.env_indices)
            if feedback.terminated[row]
        ]
        first = dict(reversed(episodes))
        assert not first[2]  # it had run one chunk or more of its seven steps
        assert all(mask for _, mask in episodes[-2:])

    def test_tells_of_finished_episodes(self, client: Client) -> None:
        for _, feedback in run(client, until_stop(9)):
            assert bool(feedback.info) == bool(feedback.terminated.any())
            for row in np.flatnonzero(feedback.terminated):
                figures = feedback.info_rows()[row]["episode"]
                length = 3 + 2 * (feedback.env_indices[row] % 3)
                assert (figures["r"], figures["l"], figures["s"], figures["mask"]) == (length, length, True, True)

    def test_sends_text_as_an_array_of_str(self, client: Client) -> None:
        def play(talk: Talk) -> object:
            talk.metadata()
            raw = decode(talk.socket.recv())
            talk.close(STOP)
            return raw["data"]["text"]

        assert run(client, play) == ["probe"] * 3

    def test_waits_for_a_late_metadata_that_is_large_and_strange(self, client: Client) -> None:
        def play(talk: Talk) -> object:
            with pytest.raises(TimeoutError):
                talk.message(seconds=0.2)
            talk.metadata(padding="x" * 1_200_000, protocol_version=2, action_horizon=99, unheard_of={"a": [None]})
            return talk.exchange(), talk.close(STOP)

        assert run(client, play)

    def test_offers_no_compression(self, client: Client) -> None:
        assert run(client, lambda talk: ("Sec-WebSocket-Extensions" in talk.headers, talk.close(STOP))[0]) is False

    def test_reads_actions_of_every_dtype(self, client: Client) -> None:
        sent = [actions_of(dtype) for dtype in DTYPES.split()]

        def play(talk: Talk) -> list[Feedback]:
            talk.metadata()
            reported = []
            for actions in sent:
                talk.act(talk.infer(), actions)
                reported.append(talk.feedback())
            talk.close(STOP)
            return reported

        for actions, feedback in zip(sent, run(client, play, "--batch", "1"), strict=True):
            assert feedback.observation.states["a"].tolist() == actions[2].astype("<f8").tolist(), actions.dtype

    @pytest.mark.parametrize("shape", [(), (1,), (2, 3)])
    def test_reads_actions_of_every_shape(self, client: Client, shape: tuple[int, ...]) -> None:
        sent = np.arange(2 * 3 * int(np.prod(shape)), dtype="<f4").reshape(2, 3, *shape)

        def play(talk: Talk) -> Feedback:
            talk.metadata()
            talk.act(talk.infer(), sent)
            feedback = talk.feedback()
            talk.close(STOP)
            return feedback

        feedback = run(client, play)
        assert feedback.env_indices.tolist() == [0, 1, 2]
        assert feedback.rewards.tolist() == [2, 2, 2]
        assert feedback.observation.states["a"].tolist() == sent[1].reshape(3, -1).tolist()

    def test_takes_an_action_without_env_ids(self, client: Client) -> None:
        def play(talk: Talk) -> Feedback:
            talk.metadata()
            infer = talk.infer()
            talk.send({"message_type": "action", "data": {"action": coded(infer.env_indices)}})
            return talk.feedback(), talk.close(STOP)

        assert run(client, play)

    def test_puts_fragments_together_and_answers_pings(self, client: Client) -> None:
        def play(talk: Talk) -> bool:
            talk.metadata()
            infer = talk.infer()
            action = {
                "message_type": "action",
                "data": {"env_ids": infer.env_indices, "action": coded(infer.env_indices)},
            }
            frame = encode(action)
            parts = [frame[:1], frame[1:7], b"", frame[7:]]
            pongs = []

            def fragments():
                for part in parts:
                    yield part
                    pongs.append(talk.socket.ping())

            talk.socket.send(fragments())
            talk.feedback()
            talk.infer()
            answered = all(pong.wait(5) for pong in pongs)
            talk.close(STOP)
            return answered

        assert run(client, play) is True


class TestFeatures:
    def test_reuses_what_the_server_holds(self, client: Client) -> None:
        played = run(client, until_stop(20, features=[REUSE]), "--batch", "4")
        held: set[int] = set()
        for infer, feedback in played:
            assert infer.reuse is not None
            assert {env for env, reused in zip(infer.env_indices, infer.reuse, strict=True) if reused} == (
                held & set(infer.env_indices.tolist())
            )
            assert len(infer.observation) == int((~infer.reuse).sum())
            held -= set(feedback.env_indices.tolist())
            held |= set(feedback.env_indices[~feedback.terminated].tolist())
        assert any(len(infer.observation) == 0 for infer, _ in played)
        assert any(0 < len(infer.observation) < len(infer.env_indices) for infer, _ in played)

    def test_reuses_nothing_on_a_new_connection(self, client: Client) -> None:
        with referee(until_resync(3, features=[REUSE]), until_stop(3, features=[REUSE])) as judge:
            assert client.run(judge.port, "--probe").status == 0
        assert not judge.results[1][0][0].reuse.any()

    @pytest.mark.parametrize(("options", "features"), [((), []), (("--no-reuse",), [REUSE])])
    def test_sends_everything_otherwise(self, client: Client, options: tuple[str, ...], features: list[str]) -> None:
        for infer, _ in run(client, until_stop(6, features=features), *options):
            assert infer.reuse is None

    def test_declares_pendulum_once_a_connection(self, client: Client) -> None:
        played = run(client, until_stop(3, features=["declare-spaces"]), "--batch", "2", mode="--train")
        declared = played[0][0].spaces
        assert declared.action == BoxSpace((1,), np.dtype("<f4"), np.float32([-2]), np.float32([2]))
        assert (declared.env, declared.num_envs, declared.max_episode_steps, declared.client) == (
            "Pendulum-v1",
            2,
            200,
            0,
        )
        assert all(infer.spaces is None for infer, _ in played[1:])

    def test_takes_its_number_from_the_server_that_started_it(self, client: Client) -> None:
        started = Client(client.name, client.program, {"PLUGRL_CLIENT_OFFSET": "3"})
        played = run(started, until_stop(1, features=["declare-spaces"]), mode="--train")
        assert played[0][0].spaces.client == 3000

    def test_declares_nothing_unasked(self, client: Client) -> None:
        assert run(client, until_stop(1), mode="--train")[0][0].spaces is None


class TestEnd:
    def test_says_goodbye_when_it_has_finished(self, client: Client) -> None:
        def play(talk: Talk) -> object:
            talk.metadata()
            for _ in range(5):
                talk.exchange()
            return talk.closed()

        assert run(client, play, "--steps", "5", mode="") == (1000, "")

    def test_stops_before_the_metadata(self, client: Client) -> None:
        """Lesson 11: that is a clean end."""
        run(client, lambda talk: talk.close(STOP))

    @pytest.mark.parametrize(
        "close", [Close(1000), RESYNC, FEEDBACK_TIMEOUT, INTERNAL_ERROR, Close(1001)], ids=lambda close: str(close)
    )
    def test_reconnects_with_back_off(self, client: Client, close: Close) -> None:
        def play(talk: Talk) -> None:
            talk.metadata()
            talk.infer()
            talk.close(close)

        with referee(play, until_stop(2)) as judge:
            end = client.run(judge.port, "--probe")
        assert end.status == 0, end.output
        assert f"{close}; attempt 1 of 20 in" in end.output

    def test_reconnects_when_the_connection_breaks(self, client: Client) -> None:
        def play(talk: Talk) -> None:
            talk.metadata()
            talk.infer()
            talk.socket.socket.shutdown(socket.SHUT_RDWR)

        with referee(play, until_stop(2)) as judge:
            end = client.run(judge.port, "--probe")
        assert end.status == 0, end.output
        assert "1006" in end.output

    @pytest.mark.parametrize("close", [Close(1009, "too big"), reject("action_dim 3, this run has 6")], ids=str)
    def test_ends_where_trying_again_changes_nothing(self, client: Client, close: Close) -> None:
        with referee(lambda talk: talk.close(close)) as judge:
            end = client.run(judge.port, "--probe")
        assert end.status == 1
        assert str(close) in end.output
        assert len(judge.results) == 1

    def test_counts_attempts_since_the_last_exchange(self, client: Client) -> None:
        """Lesson 11: a limit, and one line an attempt."""
        scripts = [until_resync(1), until_resync(1), until_resync(0), until_resync(0), until_resync(0)]
        with referee(*scripts) as judge:
            end = client.run(judge.port, "--probe", "--max-reconnects", "2")
        assert end.status == 1
        assert len(judge.results) == 4
        assert end.output.count("; attempt ") == 3
        assert "giving up after 2 attempts" in end.output

    def test_names_the_server_that_it_cannot_reach(self, client: Client) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
        end = client.run(port, "", "--max-reconnects", "1")
        assert end.status == 1
        assert f"cannot connect to 127.0.0.1 port {port}" in end.output

    def test_takes_a_text_frame_for_the_end(self, client: Client) -> None:
        def play(talk: Talk) -> tuple[int, str]:
            talk.metadata()
            talk.infer()
            talk.socket.send("not for you")
            return talk.closed()

        assert run(client, play, status=1)[0] == 1003

    def test_leaves_on_a_signal(self, client: Client) -> None:
        def play(talk: Talk) -> tuple[int, str]:
            talk.metadata()
            talk.infer()
            process.send_signal(signal.SIGTERM)
            return talk.closed()

        with referee(play) as judge:
            process = client.start(judge.port, "--probe")
            output, _ = process.communicate(timeout=20)
        assert process.returncode == 130, output
        assert judge.results == [(1000, "")]

    def test_leaves_on_a_signal_while_it_waits_to_reconnect(self, client: Client) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
        process = client.start(port)
        assert process.stdout is not None
        assert "attempt 1 of 20" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        end = ended(process)
        assert end.status == 130
        assert "Traceback" not in end.output

    @pytest.mark.parametrize(
        ("data", "said"),
        [
            ({"action": np.zeros((2, 4, 1)), "env_ids": np.arange(4)}, "axis 1"),
            ({"action": np.zeros((2, 3, 1)), "env_ids": np.array([0, 2, 1])}, "env_indices"),
            ({"action": np.zeros((2, 3, 1)), "env_ids": np.arange(2)}, "env_ids"),
            ({"action": np.full((2, 3, 1), np.nan)}, "finite"),
            ({"action": np.zeros((0, 3, 1))}, "H >= 1"),
            ({"action": np.zeros(3)}, "H >= 1"),
            ({"action": np.full((2, 3), "up")}, "numbers"),
            ({"action": [1, 2, 3]}, "numbers"),
            ({}, "numbers"),
        ],
    )
    def test_refuses_an_action_that_is_none(self, client: Client, data: dict[str, object], said: str) -> None:
        def play(talk: Talk) -> tuple[int, str]:
            talk.metadata()
            talk.infer()
            talk.send({"message_type": "action", "data": data})
            return talk.closed()

        code, reason = run(client, play, status=1)
        assert code == 1002
        assert said in reason

    @pytest.mark.parametrize(
        "message",
        [
            {"message_type": "action", "data": {}},
            {"message_type": "metadata"},
            {"message_type": "metadata", "data": {"features": "reuse"}},
            {"data": {}},
            ["metadata"],
            None,
        ],
    )
    def test_refuses_a_greeting_that_is_none(self, client: Client, message: object) -> None:
        code, _ = run(client, lambda talk: (talk.send(message), talk.closed())[1], status=1)
        assert code == 1002


class TestWithReferenceServer:
    @pytest.mark.parametrize("mode", ["", "--probe", "--train"])
    def test_runs_to_the_stop(self, client: Client, mode: str) -> None:
        layout = ("--state-key", "t", "--state-dim", "1") if mode == "--probe" else ("--action-dim", "1")
        with reference_server("--exchanges", "50", *layout) as server:
            end = client.run(server.port, mode, "--steps", "0")
            served = server.ended()
        assert end == Ended(0, f"{client.name}: the server has ended the run; 50 exchanges\n")
        assert served.status == 0

    def test_speaks_ipv6(self, client: Client) -> None:
        if not socket.has_dualstack_ipv6():
            pytest.skip("this machine has no IPv6")
        with reference_server("--host", "::1") as server:
            assert client.run(server.port, "", host="::1").status == 0

    def test_finds_a_server_by_name(self, client: Client) -> None:
        with reference_server() as server:
            assert client.run(server.port, "", host="localhost").status == 0

    @pytest.mark.parametrize(("key", "status"), [("secret", 0), ("wrong", 1), ("", 1)])
    def test_sends_the_api_key(self, client: Client, key: str, status: int) -> None:
        asking = Client(client.name, client.program, {"PLUGRL_API_KEY": key})
        with reference_server("--api-key", "secret") as server:
            end = asking.run(server.port)
        assert end.status == status
        assert ("HTTP 401" in end.output) == bool(status)

    def test_is_turned_away_with_the_reason(self, client: Client) -> None:
        with reference_server("--action-dim", "6") as server:
            end = client.run(server.port, "--train")
        assert end.status == 1
        assert "1008 plugrl-server-reject: action_dim 1, this run has 6" in end.output


class TestCommandLine:
    @pytest.mark.parametrize("host", ["not a host", "x" * 300, "::zz"])
    def test_names_a_host_that_is_none(self, client: Client, host: str) -> None:
        end = client.run(8000, "", "--max-reconnects", "0", host=host)
        assert end.status == 1
        assert host in end.output

    def test_names_an_offset_that_is_none(self, client: Client) -> None:
        end = Client(client.name, client.program, {"PLUGRL_CLIENT_OFFSET": "second"}).run(8000)
        assert end.status == 2

    @pytest.mark.parametrize(
        "arguments", [("--bug", "unheard-of"), ("--unheard-of",), ("--max-reconnects", "many"), ("--batch", "0")]
    )
    def test_names_what_it_does_not_understand(self, client: Client, arguments: tuple[str, ...]) -> None:
        end = client.run(8000, "", *arguments)
        assert end.status == 2
        assert arguments[-1] in end.output
        assert "Traceback" not in end.output

    def test_lists_its_bugs(self, client: Client) -> None:
        end = client.alone("--help")
        assert end.status == 0
        assert "last-step-reward   5.4" in end.output
