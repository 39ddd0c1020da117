"""The summary, and the files of a run with a name."""

import json

import numpy as np
from plugrl_env_client.envs.dummy_v1 import DummyConfig
from plugrl_env_client.options import ClientOptions, Run, RunnerOptions
from plugrl_env_client.reporting.figures import EpisodeFigures
from plugrl_env_client.reporting.records import summary_text, write_config, write_summary
from plugrl_env_client.reporting.tally import ConnectionRecord, Snapshot, nothing_yet

SNAPSHOT = Snapshot(
    seconds=10.0,
    steps=1_000,
    env_steps=np.array([1_000]),
    figures=EpisodeFigures.of(1, np.zeros(4, int), np.full(4, 2.5), np.ones(4), np.zeros(4, bool), np.zeros(4, bool)),
    recent=(2.5,),
    waited=5.0,
    connections=(ConnectionRecord(900, 0, 90, "stop"), ConnectionRecord(100, 8, 10, "lost")),
)


def test_the_summary_names_steps_returns_and_feedback():
    assert summary_text("the server ended the run", SNAPSHOT) == (
        "the server ended the run: 1,000 env steps in 10.0 s (100 steps/s, 50% waiting), 4 episodes, mean return 2.50\n"
        "feedback: 1,000 rows sent over 2 connections, 8 unconfirmed"
    )


def test_a_run_that_came_to_nothing_has_a_summary_too():
    text = summary_text("failed", nothing_yet(1))
    assert "0 episodes\nfeedback: 0 rows sent over 0 connections, 0 unconfirmed" in text


def test_lesson_26_the_configuration_is_complete_and_keeps_the_key_to_itself(tmp_path):
    options = ClientOptions(api_key="s3cret", runner=RunnerOptions(replan_steps=2))
    write_config(tmp_path / "run", Run("dummy-v1", DummyConfig(action_dim=3), options, seed=7, offset=1))
    text = (tmp_path / "run" / "config.json").read_text()
    config = json.loads(text)
    assert "s3cret" not in text
    assert (config["env"], config["seed"], config["client_offset"]) == ("dummy-v1", 7, 1)
    assert config["options"]["env"]["action_dim"] == 3
    assert config["options"]["runner"]["replan_steps"] == 2
    assert {"python", "numpy", "gymnasium", "websockets"} <= set(config["versions"])


def test_the_summary_file_holds_every_connection(tmp_path):
    write_summary(tmp_path / "run", "failed (why)", 1, SNAPSHOT)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["outcome"], summary["exit_code"], summary["returns"]["mean"]) == ("failed (why)", 1, 2.5)
    assert [connection["unconfirmed_rows"] for connection in summary["connections"]] == [0, 8]
