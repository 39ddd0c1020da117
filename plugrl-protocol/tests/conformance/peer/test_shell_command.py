"""Processes of the peer under test (lesson 10: the whole group is ended)."""

import os
import signal
import time
from pathlib import Path

import pytest
from plugrl_protocol.conformance.peer.shell_command import ShellCommand, say_status

UNTIL = 5.0


def gone(pid: int) -> bool:
    """Whether a process has ended; one that nobody waits for may stay behind as a zombie."""
    until = time.monotonic() + UNTIL
    while time.monotonic() < until:
        try:
            os.kill(pid, 0)
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (ProcessLookupError, FileNotFoundError):
            return True
    return False


def test_host_and_port_are_filled_in_and_output_is_kept():
    with ShellCommand("echo {host}:{port} ${HOME:+x}; echo oops >&2; printf 'a\\007b'; exit 3", "::1", 8000) as command:
        assert command.wait(UNTIL) == 3
        assert command.output() == ["::1:8000 x", "oops", "a?b"]
        assert command.poll() == 3
        assert command.ended


def test_only_the_last_lines_are_shown():
    with ShellCommand("seq 1000", "h", 1) as command:
        command.wait(UNTIL)

        assert command.output() == [str(number) for number in range(961, 1001)]


def test_wait_is_bounded_and_the_end_is_sure(monkeypatch):
    monkeypatch.setattr("plugrl_protocol.conformance.peer.shell_command._END_SECONDS", 0.2)
    with ShellCommand("trap '' TERM; sleep 60 & echo $!; wait; sleep 60", "h", 1) as command:
        assert command.wait(0.3) is None
        assert command.poll() is None
        assert not command.ended
        child = int(command.output()[0])

    assert gone(child), "SIGKILL ends what SIGTERM does not"


def test_what_outlives_the_shell_is_ended_too():
    with ShellCommand("sleep 60 & echo $!", "h", 1) as command:
        assert command.wait(UNTIL) == 0
        assert not command.ended, "its child still runs"
        child = int(command.output()[0])

    assert gone(child)


@pytest.mark.parametrize(
    ("status", "told"), [(0, "exit status 0"), (3, "exit status 3"), (-signal.SIGKILL, "signal SIGKILL")]
)
def test_a_status_in_words(status, told):
    assert say_status(status) == told
