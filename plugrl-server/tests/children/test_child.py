import asyncio
import os
import signal
from pathlib import Path

import pytest
from plugrl_server.children.child import TAIL_LINES, Child


@pytest.fixture
def child(tmp_path):
    def make(command):
        return Child(command, tmp_path / "clients" / "0.log")

    return make


def run(child, environment=None):
    asyncio.run(child.run(os.environ if environment is None else environment))
    return child


def test_output_and_exit_code_are_kept(child):
    ended = run(child("echo out; echo err >&2; exit 3"))
    assert (ended.exit_code, ended.failed, ended.outcome()) == (3, True, "exited with 3")
    assert ended.tail() == ["out", "err"]


def test_the_tail_is_the_last_twenty_lines(child):
    assert run(child("seq 1 5000")).tail() == [str(n) for n in range(5001 - TAIL_LINES, 5001)]


def test_standard_input_is_null_and_the_environment_is_its_own(child):
    assert run(child("cat; echo $NAME"), {"PATH": os.environ["PATH"], "NAME": "x"}).tail() == ["x"]


def test_an_unknown_command_fails_with_the_shells_words(child):
    ended = run(child("no-such-client --flag"))
    assert ended.exit_code == 127
    assert "no-such-client" in ended.tail()[-1]


def test_a_log_that_cannot_be_written_is_a_failure_with_its_reason(tmp_path):
    (tmp_path / "file").write_text("")
    ended = run(Child("true", tmp_path / "file" / "0.log"))
    assert ended.failed
    assert ended.outcome().startswith("could not be started (")
    assert ended.tail() == []


def test_the_whole_group_is_signalled(child, tmp_path):
    """Lesson 10: nothing that a client started outlives it."""

    async def main():
        running = child(f"sh -c 'echo $$ > {tmp_path}/inner; exec sleep 60' & sleep 60")
        task = asyncio.create_task(running.run(os.environ))
        while not (tmp_path / "inner").exists() or not (tmp_path / "inner").read_text():  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        running.end(signal.SIGTERM)
        await task
        return running

    ended = asyncio.run(main())
    assert ended.forced
    assert ended.outcome() == "did not exit by itself and was killed"
    assert gone(int((tmp_path / "inner").read_text()))


def test_what_an_exited_command_left_behind_is_swept(child, tmp_path):
    ended = run(child(f"sleep 60 & echo $! > {tmp_path}/inner"))
    assert ended.exit_code == 0
    inner = int((tmp_path / "inner").read_text())
    os.kill(inner, 0)
    ended.sweep()
    assert gone(inner)
    assert not ended.failed


def test_a_client_ended_by_a_signal_of_its_own_is_named_so(child):
    assert run(child("kill -9 $$")).outcome() == "was ended by SIGKILL"


def test_a_client_ended_while_it_starts_does_not_run_on(child):
    early = child("sleep 60")
    early.end(signal.SIGKILL)
    assert run(early).failed


def gone(pid):
    """Whether a process has ended; a zombie that its new parent has not collected yet counts as ended."""
    for _ in range(1000):
        try:
            os.kill(pid, 0)
            if Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                return True
        except (ProcessLookupError, FileNotFoundError):
            return True
        os.sched_yield()
    return False
