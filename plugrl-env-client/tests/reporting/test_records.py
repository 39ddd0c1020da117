"""The summary, and the files of a run with a name."""

import dataclasses
import json

import numpy as np
import pytest
from plugrl_env_client.envs.dummy_v1 import DummyConfig
from plugrl_env_client.options import ClientOptions, Run, RunnerOptions
from plugrl_env_client.pacing.counts import PacingCounts
from plugrl_env_client.reporting.figures import EpisodeFigures
from plugrl_env_client.reporting.processes import ProcessStatus
from plugrl_env_client.reporting.records import RecordsError, summary_text, write_config, write_summary
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


def test_the_summary_says_how_a_paced_run_kept_time():
    paced = dataclasses.replace(SNAPSHOT, pacing=PacingCounts(steps=9, late_steps=2))
    assert summary_text("stop", paced).splitlines()[-1].startswith("pace: 2 of 9 steps late")


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


def test_a_second_run_of_a_name_begins_without_the_summary_of_the_first(tmp_path):
    folder = tmp_path / "run"
    write_summary(folder, "over", 0, [])
    write_config(folder, Run("dummy-v1", DummyConfig(), ClientOptions(), seed=7, offset=1))
    assert [path.name for path in folder.iterdir()] == ["config.json"]


def written(tmp_path, *processes):
    write_summary(tmp_path / "run", "failed (why)", 1, processes)
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["summary.json"]
    return json.loads((tmp_path / "run" / "summary.json").read_text())


def test_the_summary_file_holds_every_connection(tmp_path):
    summary = written(tmp_path, ProcessStatus(0, 0, "failed (why)", SNAPSHOT))
    assert (summary["outcome"], summary["exit_code"], summary["returns"]["mean"]) == ("failed (why)", 1, 2.5)
    assert [connection["unconfirmed_rows"] for connection in summary["connections"]] == [0, 8]
    assert [connection["process"] for connection in summary["connections"]] == [0, 0]


def test_the_summary_file_counts_each_process_and_each_env(tmp_path):
    idle = ProcessStatus(0, 0, "failed: was ended by SIGKILL", nothing_yet(2), restarts=3)
    summary = written(tmp_path, idle, ProcessStatus(1, 2, "the server ended the run", SNAPSHOT))
    assert (summary["steps"], summary["episodes"], summary["restarts"], summary["reconnects"]) == (1_000, 4, 3, 0)
    assert [(part["process"], part["first_env"], part["num_envs"]) for part in summary["processes"]] == [
        (0, 0, 2),
        (1, 2, 1),
    ]
    assert [part["outcome"] for part in summary["processes"]] == [idle.state, "the server ended the run"]
    assert [part["connections"] for part in summary["processes"]] == [0, 2]
    assert [(env["env"], env["steps"], env["episodes"]) for env in summary["envs"]] == [
        (0, 0, 0),
        (1, 0, 0),
        (2, 1_000, 4),
    ]


def test_a_summary_that_cannot_be_written_leaves_the_earlier_one(tmp_path, monkeypatch):
    before = written(tmp_path, ProcessStatus(0, 0, "over", SNAPSHOT))

    def full(self, *args, **kwargs):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("pathlib.Path.write_text", full)
        with pytest.raises(RecordsError, match=r"--exp-name run: .*/run cannot be written: No space left on device"):
            written(tmp_path)
    assert json.loads((tmp_path / "run" / "summary.json").read_text()) == before
