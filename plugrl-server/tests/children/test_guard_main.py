import functools
import os
import signal
import subprocess
import sys

import pytest
from plugrl_server.children import guard_main


@pytest.fixture
def client():
    """A process group of its own."""
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as running:
        yield running
        running.kill()


def guard(seconds, server=None):
    """The program, as a child of this process."""
    words = [sys.executable, "-I", "-S", guard_main.__file__, str(server or os.getpid()), str(seconds)]
    return subprocess.Popen(words, stdin=subprocess.PIPE)


def test_the_end_of_the_input_ends_the_groups_that_are_left(client):
    with guard(600.0) as program:
        program.stdin.write(f"{client.pid}\n".encode())
        program.stdin.close()
        assert client.wait() == -signal.SIGTERM
    assert program.returncode == 0


def test_a_group_that_is_over_is_left_alone(client):
    with guard(600.0) as program:
        program.communicate(f"{client.pid}\n-{client.pid}\n".encode())
    assert program.returncode == 0
    assert client.poll() is None


def test_a_group_that_does_not_listen_is_killed(request):
    request.addfinalizer(functools.partial(signal.signal, signal.SIGTERM, signal.getsignal(signal.SIGTERM)))
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the client inherits it
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as client, guard(0.1) as program:
        program.communicate(f"{client.pid}\n".encode())
        assert client.wait() == -signal.SIGKILL


def test_a_server_is_gone_although_the_input_is_held_open(client):
    """As by a process that the server has forked. Of the server that is given this program is no child."""
    with guard(600.0, server=client.pid) as program:
        program.stdin.write(f"{client.pid}\n".encode())
        program.stdin.flush()
        assert client.wait() == -signal.SIGTERM
        assert program.wait() == 0


def test_numbers_may_come_in_pieces():
    ours, theirs = os.pipe()
    os.write(theirs, b"12\n3")
    os.write(theirs, b"4\n-1")
    os.write(theirs, b"2\n")
    os.close(theirs)
    assert guard_main.groups_left(ours, os.getppid()) == {34}
    os.close(ours)


def test_groups_that_are_gone_already_are_no_trouble():
    with subprocess.Popen(["true"], start_new_session=True) as client:
        client.wait()
    guard_main.end({client.pid}, 600.0)
