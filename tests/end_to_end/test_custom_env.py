"""The example of an environment of one's own, in all three ways, against a real server that learns from it."""

import shutil

import pytest

from tests.end_to_end import programs
from tests.examples import sources

CLIENTS = {
    "import": "plugrl-run-env-client goto-v1 --import goto",
    "entry point": "plugrl-run-env-client goto-v1",
    "gymnasium": "plugrl-run-env-client gym-v1 --env.id goto_gym:Goto-v0",
}
TRAIN = (
    *("gaussian-policy", "default", "ppo", "default", "--port", 0, "--exp-name", "example", "--algo.global-steps", 512),
    *("--algo.buffer-size", 128, "--algo.update-epochs", 1),
)


@pytest.mark.parametrize("way", CLIENTS)
def test_a_policy_is_trained_in_it(way, start, tmp_path):
    if way == "entry point":
        search = ("env", f"PYTHONPATH={sources.install('custom_env', tmp_path / 'site')}")
    else:
        search = ()  # they are found where the reader stands
        for module in ("goto.py", "goto_gym.py"):
            shutil.copy(sources.EXAMPLES / "custom_env" / module, tmp_path)
    server = start(*search, programs.SERVER, *TRAIN, "--client", f"{CLIENTS[way]} --num-envs 4 --runner.seed 3")
    assert server.wait() == 0, server.output
    [metrics] = tmp_path.glob("checkpoints/*/*/example/metrics.jsonl")
    rows = programs.json_lines(metrics)
    assert [row["step"] for row in rows] == [128, 256, 384, 512]
    assert all(1 <= row["rollout/length"] <= 40 for row in rows if "rollout/length" in row)
    assert any("rollout/success" in row for row in rows)
    assert "Traceback" not in server.output


def test_it_is_listed_once_it_is_installed(start, tmp_path):
    site = sources.install("custom_env", tmp_path / "site")
    listing = start("env", f"PYTHONPATH={site}", programs.CLIENT, "--help")
    assert listing.wait() == 0, listing.output
    assert "goto-v1" in listing.output


def test_its_mistakes_are_told_without_a_traceback(start, tmp_path):
    site = sources.install("custom_env", tmp_path / "site")
    client = start("env", f"PYTHONPATH={site}", programs.CLIENT, "goto-v1", "--env.horizon", 0)
    assert client.wait() != 0
    assert "--env.horizon 0: expected at least 1" in client.output
    assert "Traceback" not in client.output
