import asyncio
import functools
import logging
import signal
import sys
from pathlib import Path

import pytest
from plugrl_server.children.supervisor import Supervisor

linux = pytest.mark.skipif(not Path("/proc/self/net/tcp").exists(), reason="needs Linux's /proc")


class Server:
    """What the supervisor sees of a server: its connections, and the conclusions it is told."""

    def __init__(self, folder, *commands, connections=0, port=8123, **options):
        self.connections = connections
        self.told = []
        self.concluded = asyncio.Event()
        self.supervisor = Supervisor(
            commands,
            logs=folder,
            api_key=None,
            connections=lambda: self.connections,
            on_failed=lambda: self.conclude("failed"),
            on_finished=lambda: self.conclude("finished"),
            **options,
        )
        self.supervisor.start("127.0.0.1", port)

    def everyone_came(self):
        for child in self.supervisor._children:
            child.has_connected = True
        return self

    def conclude(self, word):
        self.told.append(word)
        self.concluded.set()


@pytest.fixture
def drive(tmp_path):
    """Runs a scenario `async (make) -> result` where `make` builds a server in a folder of the test."""

    async def driven(scenario):
        servers = []

        def make(*commands, **options):
            servers.append(Server(tmp_path, *commands, **options))
            return servers[-1]

        try:
            return await scenario(make)
        finally:
            for server in servers:
                server.supervisor.hurry()
                await server.supervisor.finish()

    def driver(scenario):
        return asyncio.run(driven(scenario))

    return driver


def test_all_exited_with_zero_and_nobody_connected_means_finished(drive):
    async def scenario(make):
        server = make("true", "true")
        await server.concluded.wait()
        return server.told, await server.supervisor.finish()

    assert drive(scenario) == (["finished"], [])


def test_a_failure_that_leaves_no_connection_concludes_at_once(drive):
    async def scenario(make):
        server = make("exit 3", "exec sleep 60", patience=0.0).everyone_came()
        await server.concluded.wait()
        return server.told, [child.exit_code for child in await server.supervisor.finish()]

    told, codes = drive(scenario)
    assert told == ["failed"]
    assert codes == [3, -15]


def test_a_failure_beside_open_connections_lets_the_others_go_on(drive, caplog):
    async def scenario(make):
        server = make("exit 3", connections=1)
        await asyncio.wait(server.supervisor._watchers)
        before = list(server.told)
        server.connections = 0
        server.supervisor.connections_changed()
        return before, server.told

    with caplog.at_level(logging.ERROR):
        assert drive(scenario) == ([], ["failed"])
    assert "client 0 exited with 3: exit 3" in caplog.text


def test_finished_clients_beside_another_connection_conclude_nothing(drive):
    async def scenario(make):
        server = make("true", connections=1)
        await asyncio.wait(server.supervisor._watchers)
        return server.told

    assert drive(scenario) == []


def test_one_running_client_keeps_the_server_waiting(drive):
    async def scenario(make):
        server = make("true", "exec sleep 60")
        await server.supervisor._watchers[0]
        told = list(server.told)
        server.supervisor.hurry()
        await server.supervisor.finish()
        return told

    assert drive(scenario) == []


def test_the_clients_get_their_address_and_number(drive, tmp_path):
    async def scenario(make):
        command = "echo {host} {port} $PLUGRL_SERVER_HOST $PLUGRL_SERVER_PORT $PLUGRL_CLIENT_OFFSET"
        server = make(command, command)
        await server.concluded.wait()
        await server.supervisor.finish()

    drive(scenario)
    assert (tmp_path / "0.log").read_text() == "127.0.0.1 8123 127.0.0.1 8123 0\n"
    assert (tmp_path / "1.log").read_text() == "127.0.0.1 8123 127.0.0.1 8123 1\n"


def test_a_client_that_stays_is_terminated_then_killed(drive, caplog):
    async def scenario(make):
        polite = "trap 'echo bye; exit 0' TERM; while :; do sleep 0.01; done"
        stubborn = "trap '' TERM; echo ready; while :; do sleep 0.01; done"
        server = make(polite, stubborn, patience=0.3, term_patience=0.3).everyone_came()
        failed = await server.supervisor.finish()
        return [(child.exit_code, child.forced) for child in failed], server.supervisor.report(failed[1])

    outcomes, report = drive(scenario)
    assert outcomes == [(0, True), (-9, True)]
    assert "client 1 does not exit: sending SIGKILL" in caplog.text
    assert report.startswith("client 1 did not exit by itself and was killed: trap")
    assert report.endswith("  | ready")


def test_a_failure_after_the_stop_counts_but_concludes_nothing(drive):
    async def scenario(make):
        server = make("sleep 0.05; exit 5").everyone_came()
        return [child.exit_code for child in await server.supervisor.finish()], server.told

    assert drive(scenario) == ([5], [])


def test_clients_that_have_nothing_to_wait_for_are_asked_to_end_at_once(drive):
    async def scenario(make):
        server = make("exec sleep 60").everyone_came()
        return [(child.exit_code, child.forced) for child in await server.supervisor.finish(at_once=True)]

    assert drive(scenario) == [(-15, True)]


def test_hurry_waits_for_nobody(drive):
    async def scenario(make):
        server = make("trap '' TERM; while :; do sleep 0.01; done").everyone_came()
        finishing = asyncio.create_task(server.supervisor.finish())
        await asyncio.sleep(0)
        server.supervisor.hurry()
        return [child.exit_code for child in await finishing]

    assert drive(scenario) == [-9]


def test_a_silent_failure_is_reported_with_its_log(drive, tmp_path):
    async def scenario(make):
        server = make("exit 4")
        await server.concluded.wait()
        (failed,) = await server.supervisor.finish()
        return server.supervisor.report(failed)

    assert drive(scenario) == f"client 0 exited with 4: exit 4\n  (it wrote nothing to {tmp_path}/0.log)"


# Who never connected -------------------------------------------------------------------------------------------------

CONNECT = "import socket, sys; socket.create_connection(('127.0.0.1', {port})).recv(1)"
CLIENT = f'true; {sys.executable} -c "{CONNECT}"; true'
LONG = 600.0  # seconds that a test would hang, and fail, if the supervisor waited for them


@pytest.fixture
def serve(drive):
    """Runs the clients against a socket until `arrivals` have connected, then ends; returns the supervisor's server,
    and who failed."""

    def runner(*commands, arrivals=0, visitors=0, **options):
        async def scenario(make):
            arrived = asyncio.Semaphore(0)
            streams = []

            async def connected(reader, writer):
                del reader
                streams.append(writer)
                server.connections = len(streams)
                server.supervisor.connections_changed()
                arrived.release()

            listener = await asyncio.start_server(connected, "127.0.0.1", 0)
            port = listener.sockets[0].getsockname()[1]
            server = make(*commands, port=port, **options)
            others = [await asyncio.open_connection("127.0.0.1", port) for _ in range(visitors)]
            for _ in range(arrivals + visitors):
                await arrived.acquire()
            listener.close()
            for writer in (*streams, *(writer for _, writer in others)):
                writer.close()
            return server, await asyncio.wait_for(server.supervisor.finish(), 30)

        return drive(scenario)

    return runner


def test_a_client_that_never_connected_is_ended_at_once_and_has_not_failed(serve, caplog):
    with caplog.at_level(logging.INFO):
        server, failed = serve("exec sleep 600", patience=LONG)
    (child,) = server.supervisor._children
    assert (failed, child.exit_code, child.outcome()) == ([], -15, "had not connected and was ended")
    told = [record for record in caplog.records if record.name.startswith("plugrl_server.children")]
    assert [(record.levelname, record.message) for record in told] == [
        ("INFO", "client 0 had not connected and is ended with the run")
    ]


@linux
def test_the_late_one_of_several_is_ended_and_the_others_may_finish(serve):
    server, failed = serve(f"{CLIENT}; echo written", "exec sleep 600", CLIENT, arrivals=2, patience=LONG)
    children = server.supervisor._children
    assert failed == []
    assert [child.exit_code for child in children] == [0, -15, 0]
    assert [child.has_connected for child in children] == [True, False, True]
    assert children[0].tail() == ["written"]


def test_a_late_client_that_does_not_listen_is_killed_for_which_the_run_has_not_failed(serve, request):
    request.addfinalizer(functools.partial(signal.signal, signal.SIGTERM, signal.getsignal(signal.SIGTERM)))
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the client inherits it
    server, failed = serve("exec sleep 600", patience=LONG, term_patience=0.1)
    assert (failed, server.supervisor._children[0].exit_code) == ([], -9)


@linux
def test_a_client_that_connected_and_then_fails_or_stays_has_failed(serve):
    _, failed = serve(f"{CLIENT}; exit 7", arrivals=1, patience=LONG)
    assert [child.exit_code for child in failed] == [7]
    _, failed = serve(f"{CLIENT}; exec sleep 600", arrivals=1, patience=0.0)
    assert [child.exit_code for child in failed] == [-15]


def test_beside_somebody_elses_connection_nobody_counts_as_absent(serve):
    """It may be that of a client whose command has started it in a container, or on another machine."""
    _, failed = serve("exec sleep 600", visitors=1, patience=0.0)
    assert [child.exit_code for child in failed] == [-15]


def test_where_nobody_can_say_who_connected_all_may_have(serve, monkeypatch):
    monkeypatch.setattr("plugrl_server.children.supervisor.connections_to", lambda port: None)
    _, failed = serve(f"{CLIENT}; exec sleep 600", arrivals=1, patience=0.0)
    assert [child.exit_code for child in failed] == [-15]
