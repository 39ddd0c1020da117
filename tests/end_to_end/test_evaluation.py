"""A policy is trained, then measured by a run of its own: the figures are those that the client counted."""

import csv
import re
import threading

import numpy as np
import pytest

from tests.end_to_end import programs
from tests.peers.openpi_server import OpenPIServer

TRAINED = "checkpoints/ppo/gaussian-policy/small"
ENV = "plugrl-run-env-client classic-v1 --env.name Pendulum-v1"
EVAL = ("gaussian-policy", "default", "eval", "default", "--algo.policy-checkpoint-path")


def episodes(folder):
    with (folder / "episodes.csv").open(newline="") as table:
        return list(csv.DictReader(table))


def test_a_trained_policy_is_measured_by_what_the_client_counts(serve, tmp_path):
    server, _ = serve(
        *("gaussian-policy", "default", "ppo", "default", "--exp-name", "small", "--seed", 1),
        *("--policy.hidden-sizes", 16, 16, "--algo.global-steps", 4096, "--algo.update-epochs", 2),
        *("--client", f"{ENV} --num-envs 8"),
    )
    assert server.wait() == 0, server.output
    server, _ = serve(*EVAL, TRAINED, "--exp-name", "measured", "--client", ENV)
    assert server.wait() == 0, server.output
    assert "hidden_sizes=[16, 16]" in server.output, "the trained policy's configuration is kept"

    folder = tmp_path / "checkpoints/eval/gaussian-policy/measured"
    returns = [float(row["return"]) for row in episodes(folder)]
    assert [row["length"] for row in episodes(folder)] == ["200"] * 10
    log = (folder / "clients/0.log").read_text()
    counted, mean = re.search(r"(\d+) episodes, mean return (-?[\d.]+)", log).groups()
    assert int(counted) == len(returns) == 10
    assert float(mean) == pytest.approx(np.mean(returns), abs=0.01)

    (row,) = programs.json_lines(folder / "metrics.jsonl")
    assert row["eval/return"] == pytest.approx(np.mean(returns))
    assert row["eval/return_std"] == pytest.approx(np.std(returns, ddof=1))
    assert row["eval/return_low"] < row["eval/return"] < row["eval/return_high"]
    line = f"return   {row['eval/return']:.2f} +- {row['eval/return_std']:.2f}"
    assert line in server.output
    assert "10 episodes of 1 environment," in server.output

    saved = tmp_path / TRAINED / "checkpoints"
    assert [step.name for step in saved.iterdir()] == ["4096"], "the trained run is left alone"


def test_a_policy_that_needs_no_checkpoint_is_measured_too_and_every_environment_does_its_share(serve, tmp_path):
    client = "plugrl-run-env-client dummy-v1 --num-envs 4"
    server, _ = serve(
        *("dummy-policy", "default", "eval", "default", "--algo.num-episodes", 6, "--exp-name", "idle"),
        *("--client", client),
    )
    assert server.wait() == 0, server.output
    rows = episodes(tmp_path / "checkpoints/eval/dummy-policy/idle")
    assert sorted(row["env"] for row in rows) == ["0", "0", "1", "1", "2", "3"]
    assert [row["index"] for row in rows] == list("012345")


def test_what_cannot_be_measured_is_refused_at_once(start):
    refused = start(programs.SERVER, *EVAL, "nowhere", "--port", 0)
    assert refused.wait() == 2
    assert "--algo.policy-checkpoint-path" in refused.output
    assert "there is no such folder" in refused.output
    assert "Traceback" not in refused.output


def test_an_openpi_server_s_policy_is_measured(serve, tmp_path, openpi):
    server, _ = serve(
        *("openpi-policy", "default", "eval", "default", "--algo.num-episodes", 2, "--exp-name", "asked"),
        *("--policy.openpi-port", openpi.port, "--policy.key-map", "observation/state=obs", "--policy.prompt", "up"),
        *("--policy.openpi-api-key", "sesame", "--client", f"{ENV} --runner.max-episode-steps 20"),
    )
    assert server.wait() == 0, server.output
    folder = tmp_path / "checkpoints/eval/openpi-policy/asked"
    assert [row["length"] for row in episodes(folder)] == ["20", "20"]
    assert len(openpi.seen) == 8, "20 steps are 4 chunks of 5 actions"
    assert openpi.seen[0].keys() == {"observation/state", "prompt"}
    assert openpi.seen[0]["observation/state"].shape == (3,)
    assert "sesame" not in server.output + (folder / "config.json").read_text()


@pytest.fixture
def openpi():
    """A stand-in for an openpi server, whose chunks are of 5 actions."""
    server = OpenPIServer(lambda observation: {"actions": np.zeros((5, 1), "f4")}, api_key="sesame")
    thread = threading.Thread(target=server.run)
    thread.start()
    yield server
    server.close()
    thread.join()
