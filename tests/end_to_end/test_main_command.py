"""The README's first command, scaled down: two processes, a run folder, exit status 0; resumed; acted with."""

import json
import re
from pathlib import Path

import numpy as np
from plugrl_server import load_policy

from tests.end_to_end import programs

TRAIN = ("gaussian-policy", "default", "ppo", "default", "--exp-name", "pendulum")
CLIENT = ("--client", "plugrl-run-env-client classic-v1 --env.name Pendulum-v1 --num-envs 8")
SHORT = ("--algo.buffer-size", 1024, "--algo.update-epochs", 2)


def test_a_run_leaves_its_folder_resumes_and_gives_a_policy_that_acts(serve, tmp_path):
    server, _ = serve(*TRAIN, *CLIENT, *SHORT, "--algo.global-steps", 3072, "--seed", 1)
    assert server.wait() == 0, server.output
    folder = tmp_path / "checkpoints/ppo/gaussian-policy/pendulum"
    assert f"run folder: {folder.relative_to(tmp_path)}" in server.output
    check_folder(folder, step=3072)

    server, _ = serve(*TRAIN, *CLIENT, *SHORT, "--algo.global-steps", 5120, "--resume")
    assert server.wait() == 0, server.output
    assert "resuming at step 3,072" in server.output
    check_folder(folder, step=5120)
    assert [row["step"] for row in programs.json_lines(folder / "metrics.jsonl")] == [1024, 2048, 3072, 4096, 5120]

    policy = load_policy(folder)
    action = policy.act(np.array([1.0, 0.0, 0.0]))
    assert (policy.step, action.shape, action.dtype) == (5120, (1,), np.float32)


def check_folder(folder, *, step):
    config = json.loads((folder / "config.json").read_text())
    assert config["policy"]["class"] == "GaussianPolicy"
    assert config["algorithm"]["module"] == "plugrl_server.algorithm.ppo.ppo"
    assert config["seed"] == 1
    assert "torch" in json.dumps(config)
    assert (folder / "checkpoints" / str(step) / "manifest.json").exists()
    assert (folder / "learning_curve.png").read_bytes().startswith(b"\x89PNG")
    assert list((folder / "tensorboard").glob("events.*"))
    assert "the server ended the run" in (folder / "clients/0.log").read_text()
    rows = programs.json_lines(folder / "metrics.jsonl")
    assert all({"step", "time", "losses/policy_loss", "losses/value_loss"} <= row.keys() for row in rows)
    assert any("rollout/reward" in row for row in rows)
    assert {name for row in rows for name in row} <= documented_metrics()


def documented_metrics():
    """The names in the guide's table of metrics."""
    page = Path(__file__).parents[2] / "docs/guide/run-folder.md"
    return {"step", "time"} | set(re.findall(r"`(\w+/\w+)`", page.read_text()))
