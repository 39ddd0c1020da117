"""`--learners 2`: a run that two processes learn in, and what is left of one whose second process was killed."""

import os
import signal
import subprocess
from pathlib import Path

import pytest
from plugrl_server import load_policy

from tests.end_to_end import programs

pytestmark = pytest.mark.slow

PENDULUM = "plugrl-run-env-client classic-v1 --env.name Pendulum-v1 --num-envs 4"
PPO = ("gaussian-policy", "default", "ppo", "default", "--learners", 2, "--algo.buffer-size", 512)


def processes_of(pid):
    """The processes that a program started and that still run: torchrun's, so rank 0 first."""
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False)
    return sorted(map(int, listed.stdout.split()))


def test_two_learners_train_and_what_they_trained_loads_without_them(serve, tmp_path):
    server, _ = serve(
        *(*PPO, "--exp-name", "shared", "--algo.global-steps", 2048, "--algo.batch-size", 100, "--seed", 1),
        *("--client", f"env > environment.txt; {PENDULUM}"),
    )
    ranks = processes_of(server.process.pid)
    assert len(ranks) == 2
    assert server.wait() == 0, server.output
    assert not [pid for pid in ranks if Path(f"/proc/{pid}").exists()]
    assert server.output.count("finished: step 2,048") == 1
    assert "error" not in server.output
    assert "--resume --exp-name shared" in server.output
    assert "--learners 2" in server.output

    folder = tmp_path / "checkpoints/ppo/gaussian-policy/shared"
    rows = programs.json_lines(folder / "metrics.jsonl")
    assert [row["step"] for row in rows] == [512, 1024, 1536, 2048]
    assert all(0 < row["losses/approx_kl"] < 0.1 for row in rows)
    assert load_policy(folder).step == 2048

    variables = dict(line.partition("=")[::2] for line in (tmp_path / "environment.txt").read_text().splitlines())
    assert "PLUGRL_SERVER_PORT" in variables
    assert not {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID"} & variables.keys()
    for name in ("OMP_NUM_THREADS", "GLOO_SOCKET_IFNAME"):
        assert variables.get(name) == os.environ.get(name)


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks processes up in /proc")
def test_a_learner_that_is_killed_ends_the_run_by_its_name_and_with_a_checkpoint(serve, tmp_path):
    server, _ = serve(
        *(*PPO, "--exp-name", "killed", "--algo.global-steps", 10_000_000, "--show-metric-table"),
        *("--client", PENDULUM),
    )
    server.wait_for("losses/policy_loss|policy_loss")
    ranks = processes_of(server.process.pid)
    os.kill(ranks[1], signal.SIGKILL)
    assert server.wait() == 1, server.output
    assert f"error: learner 1 (process {ranks[1]}) was ended by SIGKILL" in server.output
    assert "Traceback" not in server.output
    assert not [pid for pid in ranks if Path(f"/proc/{pid}").exists()]
    assert load_policy(tmp_path / "checkpoints/ppo/gaussian-policy/killed").step > 0
