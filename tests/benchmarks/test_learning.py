import csv
import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest
from plugrl_server.algorithm.ppo.ppo_config import PPOPendulumConfig

LEARNING = Path(__file__).resolve().parents[2] / "benchmarks" / "learning"
sys.path.insert(0, str(LEARNING))

import curves  # noqa: E402
import train  # noqa: E402
from rows import ROWS  # noqa: E402

from tests.docs.test_commands import check  # noqa: E402


def run_folder(tmp_path, rewards, *, every=100):
    """A run folder with one report for each reward; None: no episode ended."""
    lines = [
        json.dumps({"step": every * (i + 1), "time": 0.0, "rollout/reward": reward, "rollout/length": 200.0})
        for i, reward in enumerate(rewards)
    ]
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines) + '\n{"step": 99', encoding="utf-8")
    (tmp_path / "config.json").write_text(json.dumps({"versions": {"torch": "1"}, "algorithm": {"uid": "ppo"}}))
    return tmp_path


SESSION = {"command": "c", "commit": "abc", "wall_seconds": 10.0, "load_average": 0.5, "finished": True}


@pytest.mark.parametrize("name", ROWS)
def test_every_row_is_a_command_that_can_start(name, tmp_path):
    check(ROWS[name].command(tmp_path, 0))


def test_no_two_runs_share_a_folder(tmp_path):
    folders = [row.run_folder(tmp_path, seed) for row in ROWS.values() for seed in range(row.seeds)]
    assert len({*folders}) == len(folders)


def test_a_resumed_run_has_no_seed_of_its_own(tmp_path):
    command = ROWS["ppo-cartpole"].command(tmp_path, 3, resume=True)
    assert "--resume" in command
    assert "--seed" not in command
    assert "--seed" in ROWS["ppo-cartpole"].command(tmp_path, 3)


def test_the_final_figure_is_the_mean_of_the_last_ten_reports_with_episodes(tmp_path):
    rewards = [None, 50.0, *[10.0] * 10, None, *range(10), None]
    found = train.figures(train.read_metrics(run_folder(tmp_path, rewards)))
    assert found == {"steps": 2400, "final": 4.5, "best": 14.0}


def test_a_run_without_episodes_has_no_figure(tmp_path):
    assert train.figures(train.read_metrics(run_folder(tmp_path, [None]))) == {
        "steps": 100,
        "final": None,
        "best": None,
    }
    assert train.figures([])["steps"] == 0


def test_what_is_kept_of_a_run(tmp_path):
    folder = run_folder(tmp_path, [1.0, None, 3.0])
    kept = json.loads(train.keep("ppo-cartpole", 2, folder, SESSION, tmp_path / "results").read_text())
    assert kept["final"] == 2.0
    assert kept["versions"] == {"torch": "1"}
    assert kept["wall_seconds"] == 10.0
    with (tmp_path / "results" / "ppo-cartpole" / "seed2.csv").open() as file:
        assert [*csv.reader(file)] == [["step", "reward", "length"], ["100", "1.0", "200.0"], ["300", "3.0", "200.0"]]


def test_the_parts_of_a_resumed_run_add_up(tmp_path):
    folder, results = run_folder(tmp_path, [1.0]), tmp_path / "results"
    train.keep("ppo-cartpole", 0, folder, SESSION, results)
    kept = train.keep("ppo-cartpole", 0, folder, {**SESSION, "wall_seconds": 5.0, "resumed": True}, results)
    assert json.loads(kept.read_text())["wall_seconds"] == 15.0


@pytest.mark.parametrize("resume", [False, True])
def test_a_run_that_is_refused_leaves_what_is_kept(tmp_path, monkeypatch, resume):
    """As where its folder holds a run already, or nothing is left to do."""
    row = ROWS["ppo-cartpole"]
    folder = row.run_folder(tmp_path, 0)
    folder.mkdir(parents=True)
    run_folder(folder, [1.0])
    monkeypatch.setattr(train.subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], 1))
    monkeypatch.setattr(train, "keep", lambda *_: pytest.fail("kept"))
    assert train.train("ppo-cartpole", row, 0, tmp_path, resume=resume) == 1


def test_the_table_says_what_was_not_run_and_what_was_cut_short(tmp_path):
    row = ROWS["ppo-cartpole"]
    assert "not run" in curves.table_line("ppo-cartpole", row, [])
    run = {"seed": 1, "final": 470.0, "steps": 5000, "finished": False, "wall_seconds": 3.0}
    line = curves.table_line("ppo-cartpole", row, [run])
    assert "470.0 (seed 1 stopped at 5,000)" in line
    assert "1 of 5" in line
    whole = curves.table_line("ppo-cartpole", row, [{**run, "finished": True}])
    assert "stopped" not in whole


def test_an_algorithms_own_table_has_its_runs_and_no_others(tmp_path):
    run = {"seed": 0, "final": 470.0, "steps": 5000, "finished": True}
    for name in ("ppo-cartpole", "sac-pendulum"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "seed0.json").write_text(json.dumps(run))
    lines = curves.own_table("ppo", tmp_path).splitlines()[2:]
    assert lines == ["| `ppo-cartpole` | discrete | categorical-policy default | CartPole-v1 | 100,000 | 470.0 | 475 |"]
    (tmp_path / "ppo-cartpole" / "seed0.json").write_text(json.dumps({**run, "finished": False}))
    assert "| 470.0 (seed 0 stopped at 5,000) |" in curves.own_table("ppo", tmp_path)


def test_a_run_of_a_preset_that_has_changed_since_is_told_from_one_of_today_s():
    row = dataclasses.replace(ROWS["ppo-pendulum"], flags="--algo.gamma 0.5")
    now = json.loads(json.dumps(dataclasses.asdict(PPOPendulumConfig())))
    today, older = ({"seed": seed, "finished": True, "algorithm": {"config": {**now, "gamma": 0.5}}} for seed in (0, 1))
    older["algorithm"]["config"] |= {"update_epochs": 3, "global_steps": 5, "gone_since": 1}
    assert curves.remarks(row, [today, older, {**older, "seed": 2}]) == " (seeds 1, 2 still with update_epochs 3)"
    assert curves.remarks(row, [today]) == ""


def test_the_committed_tables_are_those_of_the_committed_results(tmp_path, monkeypatch):
    assert curves.main(["--check"]) == 0
    monkeypatch.setattr(curves, "pages", lambda: {curves.ALGORITHMS / "ppo" / "README.md": curves.own_table("sac")})
    assert curves.main(["--check"]) == 1


def test_a_curve_is_drawn(tmp_path):
    train.keep("ppo-cartpole", 0, run_folder(tmp_path, [1.0, 2.0]), SESSION, tmp_path / "results")
    curves.draw("ppo-cartpole", ROWS["ppo-cartpole"], tmp_path / "results")
    assert (tmp_path / "results" / "ppo-cartpole" / "curve.png").stat().st_size > 1000
