import importlib.util
import json
from pathlib import Path

import end_to_end
import pytest
from end_to_end import TASKS, Ours, Run

needs_sb3 = pytest.mark.skipif(
    importlib.util.find_spec("stable_baselines3") is None, reason="Stable-Baselines3 is in the dependency group bench"
)


def test_a_run_is_timed_from_the_first_learn_step_to_the_last():
    found = Run.of("plugrl", 0, [(2048, 100.0), (4096, 101.0), (6144, 102.0)])
    assert (found.learn_steps, found.env_steps, found.seconds, found.steps_per_second) == (2, 4096, 2.0, 2048.0)


def test_ratio_is_against_the_better_sb3_of_the_same_repeat():
    speeds = {"plugrl": [300.0, 100.0], "sb3_1_thread": [100.0, 200.0], "sb3_2_threads": [200.0, 50.0]}
    runs = [Run(name, repeat, 1, 1, 1.0, speed) for name, all_ in speeds.items() for repeat, speed in enumerate(all_)]
    assert end_to_end.ratio(runs) == 1.0


@pytest.mark.parametrize("contender", ["plugrl", pytest.param("sb3_1_thread", marks=needs_sb3)])
@pytest.mark.slow
def test_both_sides_learn_as_often_as_asked(contender):
    stamps = end_to_end.run(contender, TASKS["cartpole"], iterations=2, seed=0, timeout=100, ours=Ours())
    assert [step for step, _ in stamps] == [2048, 4096]
    assert stamps[0][1] < stamps[1][1]


def test_a_side_that_learns_too_seldom_is_an_error(monkeypatch, capsys):
    monkeypatch.setattr(end_to_end, "run_plugrl", lambda *_: [(2048, 0.0)])
    assert end_to_end.main(["--env", "cartpole", "--iterations", "2", "--repeats", "1"]) == 1
    assert "plugrl: expected learn steps at [2048, 4096]" in capsys.readouterr().err


def test_report_holds_the_ratios_and_every_run(tmp_path, monkeypatch):
    speeds = {"plugrl": 1.0, "sb3_1_thread": 2.0, "sb3_2_threads": 4.0}  # seconds for each learn step
    monkeypatch.setattr(end_to_end, "run", lambda name, *_: [(2048 * i, speeds[name] * i) for i in range(1, 5)])
    assert end_to_end.main(["--quick", "--json", str(tmp_path / "report.json")]) == 0
    content = json.loads((tmp_path / "report.json").read_text())
    assert content["ratio_cartpole"] == content["ratio_halfcheetah"] == 2.0
    assert [run["contender"] for run in content["runs"]["cartpole"]] == list(end_to_end.CONTENDERS)
    assert "--env.name CartPole-v1 --num-envs 8" in content["settings"]["commands"]["cartpole"]


def test_flags_for_our_commands_are_added():
    command = end_to_end.plugrl_command(TASKS["cartpole"], 2, 0, Path("runs"), Ours("--spin-us 50", "--spin-us 60"))
    assert command[-2:] == ["--spin-us", "50"]
    assert command[command.index("--client") + 1].endswith("--num-envs 8 --spin-us 60")


def test_iterations_are_checked(capsys):
    with pytest.raises(SystemExit):
        end_to_end.main(["--iterations", "1"])
    assert "--iterations must be at least 2" in capsys.readouterr().err
