"""SAC with its learner in a process of its own, beside real clients: how a run ends, resumes, and leaves nothing."""

import os
import signal
import time
from pathlib import Path

import pytest
from plugrl_server import load_policy

from tests.end_to_end import programs

RUN = (
    *("sac-policy", "default", "sac", "default", "--exp-name", "run", "--policy.hidden-sizes", 16, 16),
    *("--algo.learning-starts", 64, "--algo.batch-size", 32, "--algo.report-interval", 100),
    *("--client", "plugrl-run-env-client classic-v1 --env.name Pendulum-v1 --num-envs 4"),
)
pytestmark = pytest.mark.slow
FOLDER = "checkpoints/sac/sac-policy/run"


def children_of(pid):
    """The process ids of a process's children that multiprocessing started."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            command = (stat.parent / "cmdline").read_bytes()
        except OSError:
            continue  # it has just ended
        if parent == pid and b"spawn_main" in command:
            found.append(int(stat.parent.name))
    return found


def learner_of(server):
    """The process id of a server's learner, once it has one."""
    until = time.monotonic() + programs.TIMEOUT
    while not (found := children_of(server.process.pid)):
        assert time.monotonic() < until, server.output
        assert server.process.poll() is None, server.output
        time.sleep(0.02)
    return found[0]


def is_running(pid):
    """Whether a process is there, and not just waiting for its parent to look at how it ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_run_ends_with_every_update_taken_and_resumes_without_its_process(serve, tmp_path):
    server, _ = serve(*RUN, "--algo.global-steps", 400, "--algo.concurrent")
    learner = learner_of(server)
    assert server.wait() == 0, server.output
    with pytest.raises(ProcessLookupError):
        os.kill(learner, 0)
    _, total = programs.account(server.output)
    assert total.received == total.stored + total.discarded
    rows = programs.json_lines(tmp_path / FOLDER / "metrics.jsonl")
    assert rows[-1]["losses/updates"] == total.stored - 64
    assert rows[-1]["time/updates_behind"] == 0
    assert load_policy(tmp_path / FOLDER).step == total.stored

    server, _ = serve(*RUN, "--algo.global-steps", 600, "--algo.no-concurrent", "--resume")
    assert server.wait() == 0, server.output
    assert f"resuming at step {total.stored}" in server.output
    _, more = programs.account(server.output)
    row = programs.json_lines(tmp_path / FOLDER / "metrics.jsonl")[-1]
    assert row["losses/updates"] == total.stored + more.stored - 64
    assert "time/updates_behind" not in row


def test_ctrl_c_is_for_the_server_which_saves_what_the_learner_has_learned(serve, tmp_path):
    server, _ = serve(*RUN, "--algo.concurrent", "--show-metric-table")
    server.wait_for("updates_behind")
    learner = learner_of(server)
    os.killpg(server.process.pid, signal.SIGINT)
    assert server.wait() == 0, server.output
    assert "Traceback" not in server.output
    with pytest.raises(ProcessLookupError):
        os.kill(learner, 0)
    _, total = programs.account(server.output)
    assert total.received == total.stored + total.discarded
    assert load_policy(tmp_path / FOLDER).step == total.stored

    server, _ = serve(*RUN, "--resume", "--algo.global-steps", total.stored + 100, "--algo.concurrent")
    assert server.wait() == 0, server.output
    _, more = programs.account(server.output)
    row = programs.json_lines(tmp_path / FOLDER / "metrics.jsonl")[-1]
    assert row["losses/updates"] == total.stored + more.stored - 64


def test_a_learner_that_is_killed_ends_the_run_with_its_reason(serve):
    server, _ = serve(*RUN, "--algo.concurrent", "--show-metric-table")
    server.wait_for("updates_behind")
    os.kill(learner_of(server), signal.SIGKILL)
    assert server.wait() == 1, server.output
    assert "LearnerError: the learner process was ended by SIGKILL" in server.output
    assert "Traceback" not in server.output


def test_a_server_that_is_killed_takes_its_learner_along(serve):
    server, _ = serve(*RUN, "--algo.concurrent", "--show-metric-table")
    server.wait_for("updates_behind")
    learner = learner_of(server)
    os.kill(server.process.pid, signal.SIGKILL)
    server.process.wait()
    until = time.monotonic() + programs.TIMEOUT
    while is_running(learner):
        assert time.monotonic() < until
        time.sleep(0.02)
