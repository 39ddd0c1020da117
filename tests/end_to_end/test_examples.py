"""The examples of algorithms and policies of one's own run in all three ways, with the real client."""

import shutil
import sys

import pytest

from tests.end_to_end import programs
from tests.examples import sources

CLIENT = "plugrl-run-env-client classic-v1 --env.name {} --num-envs 4"
RUN = {
    "custom_algorithm": (
        *("categorical-policy", "default", "spo", "default", "--algo.buffer-size", 128),
        *("--client", CLIENT.format("CartPole-v1")),
    ),
    "custom_policy": (
        *("beta-policy", "default", "ppo", "default", "--algo.buffer-size", 128, "--algo.update-epochs", 1),
        *("--client", CLIENT.format("Pendulum-v1")),
    ),
}
MODULE = {"custom_algorithm": "spo", "custom_policy": "beta_policy"}
COMMON = ("--port", 0, "--algo.global-steps", 512, "--exp-name", "example")


@pytest.fixture(params=["import", "entry point", "main"])
def command(request, example, tmp_path):
    """How a reader would start the server: by flag, after installing, or after importing in Python."""
    if request.param == "entry point":
        site = sources.install(example, tmp_path / "site")
        return ("env", f"PYTHONPATH={site}", programs.SERVER)
    shutil.copy(sources.EXAMPLES / example / f"{MODULE[example]}.py", tmp_path)
    if request.param == "main":
        code = f"import {MODULE[example]}; from plugrl_server.cli import main; main()"
        return (sys.executable, "-c", code)
    return (programs.SERVER, "--import", MODULE[example])


@pytest.mark.parametrize("example", RUN)
def test_an_example_trains(example, command, start, tmp_path):
    server = start(*command, *RUN[example], *COMMON)
    assert server.wait() == 0, server.output
    [metrics] = tmp_path.glob("checkpoints/*/*/example/metrics.jsonl")
    rows = programs.json_lines(metrics)
    assert [row["step"] for row in rows] == [128, 256, 384, 512]
    assert all("losses/policy_loss" in row for row in rows)
    assert (metrics.parent / "checkpoints/512").is_dir()
    assert "WARNING" not in server.output
    assert "Traceback" not in server.output
