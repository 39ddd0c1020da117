import asyncio
import os
import signal
import subprocess
import sys

import pytest
from plugrl_server.children.child import Child
from plugrl_server.children.guard import Guard

SERVER = """
import asyncio, pathlib, sys
from plugrl_server.children.supervisor import Supervisor

async def main():
    options = {"connections": lambda: 0, "on_failed": print, "on_finished": print}
    Supervisor(sys.argv[2:], logs=pathlib.Path(sys.argv[1]), api_key=None, **options).start("127.0.0.1", 80)
    await asyncio.Event().wait()

asyncio.run(main())
"""

KILLED = """
import asyncio, os, pathlib, signal, sys
from plugrl_server.children.child import Child

class Guard:
    def begins(self, group):
        print(group, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(Child(sys.argv[2], pathlib.Path(sys.argv[1]), Guard()).run(os.environ))
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGABRT], ids=lambda number: number.name)
def test_clients_of_a_killed_server_end_with_all_that_they_have_started(tmp_path, told, gone, number):
    fifo, read = told
    client = f"true; sh -c 'echo $$ $PPID > {fifo}; exec sleep 600'; true"
    with subprocess.Popen([sys.executable, "-c", SERVER, str(tmp_path), client]) as server:
        sleeping, shell = read()
        server.send_signal(number)
    gone(sleeping)
    gone(shell)


def test_a_client_does_not_begin_before_the_guard_knows_of_it(tmp_path):
    """Else a server that is killed at once would leave it behind."""
    log = tmp_path / "0.log"

    class LateGuard:
        def begins(self, group):
            said.append((group, log.read_bytes()))

        def over(self, group):
            said.append((group, log.read_bytes()))

    said = []
    child = Child("echo begun", log, LateGuard())
    asyncio.run(child.run(os.environ))
    (group, before), (ended, after) = said
    assert group == ended
    assert (before, after) == (b"", b"begun\n")


def test_a_client_whose_server_is_killed_before_the_guard_knows_never_begins(tmp_path, gone):
    begun = tmp_path / "begun"
    program = [sys.executable, "-c", KILLED, str(tmp_path / "0.log"), f"touch {begun}"]
    server = subprocess.run(program, capture_output=True, check=False)
    assert server.returncode == -signal.SIGKILL
    gone(int(server.stdout))
    assert not begun.exists()


def test_a_guard_that_is_closed_ends_nobody(gone):
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as client:
        guard = Guard(0.0)
        guard.begins(client.pid)
        guard.close()
        guard.close()
        assert client.poll() is None
        client.kill()
    gone(guard._process.pid)


def test_a_guard_that_somebody_has_killed_holds_up_nobody():
    guard = Guard()
    os.kill(guard._process.pid, signal.SIGKILL)
    guard._process.wait()
    guard.begins(1 << 30)
    guard.over(1 << 30)
    guard.close()
