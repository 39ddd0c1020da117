"""The SAC example as the mission's page runs it: one script, a client on Pendulum-v1, a real socket; resumed."""

import json
import sys
from pathlib import Path

from tests.end_to_end import programs

SCRIPT = Path(__file__).parents[2] / "plugrl-server" / "examples" / "sac" / "sac.py"
RUN = ("sac_policy", "default", "sac", "default", "--exp-name", "pendulum", "--seed", 1, "--port", 0)
SMALL = ("--algo.learning-starts", 100, "--algo.batch-size", 32, "--policy.hidden-size", 16)
CLIENT = ("--client", "plugrl-run-env-client classic-v1 --env.name Pendulum-v1 --num-envs 2")


def train(start, *more):
    server = start(sys.executable, SCRIPT, *RUN, *SMALL, *CLIENT, *more)
    assert server.wait() == 0, server.output
    assert "Traceback" not in server.output
    assert "Warning" not in server.output
    return server.output


def test_the_example_trains_and_resumes(start, tmp_path):
    output = train(start, "--algo.global-steps", 460, "--algo.report-interval", 100)
    assert "Algorithm sac: __main__.SAC replaces the built-in." in output
    resume = f"resume it:  {sys.executable} {SCRIPT} sac_policy default sac default --resume --exp-name pendulum"
    assert resume in output
    folder = tmp_path / "checkpoints/sac/sac_policy/pendulum"
    _, total = programs.account(output)
    assert total.received == total.stored
    assert total.stored >= 460

    rows = programs.json_lines(folder / "metrics.jsonl")
    assert [row["step"] // 100 for row in rows] == [2, 3, 4, 4], "a row for each 100 updates, and a last one"
    assert all(isinstance(row["losses/critic_loss"], float) for row in rows)
    assert any("rollout/reward" in row for row in rows), "episodes of 200 steps ended"
    config = json.loads((folder / "config.json").read_text())
    assert (config["algorithm"]["class"], config["algorithm"]["module"]) == ("SAC", "__main__")
    assert (config["policy"]["config"]["obs_dim"], config["policy"]["config"]["action_dim"]) == (3, 1)

    output = train(start, "--algo.global-steps", 520, "--resume")
    assert f"resuming at step {total.stored}" in output
    _, more = programs.account(output)
    assert total.stored + more.stored >= 520
    assert programs.json_lines(folder / "metrics.jsonl")[-1]["step"] == total.stored + more.stored


def test_the_example_turns_away_an_env_of_choices(start):
    server = start(sys.executable, SCRIPT, *RUN, *SMALL)
    port = server.wait_for(r"listening on \S+ port (\d+)")[1]
    client = start(programs.CLIENT, "classic-v1", "--env.name", "CartPole-v1", "--server-port", port)
    assert client.wait() != 0
    assert "sac_policy needs a Box action space" in client.output
