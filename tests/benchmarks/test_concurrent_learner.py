import json
from pathlib import Path

import concurrent_learner as bench
import pytest


def rows(*figures):
    return [{"step": step, "time": time, "losses/updates": updates} for step, time, updates in figures]


def test_a_run_is_timed_from_the_first_row_to_the_last():
    found = rows((600, 10.0, 100), (700, 10.5, 150), (1000, 12.0, 300))
    found[1]["time/updates_behind"] = 7.0
    run = bench.Run.of("concurrent", found, 0.5)
    assert (run.updates, run.seconds) == (200, 2.0)
    assert (run.env_steps_per_second, run.updates_per_second, run.most_updates_behind) == (200.0, 100.0, 7.0)


def test_both_do_the_same_work_by_commands_that_differ_in_one_flag():
    work = bench.Work(updates=100, updates_per_step=0.5)
    assert work.steps == 700
    mine, theirs = (bench.command(name, work, 3, Path("runs")) for name in ("concurrent", "alternating"))
    assert [pair for pair in zip(mine, theirs, strict=True) if pair[0] != pair[1]] == [
        ("--algo.concurrent", "--algo.no-concurrent")
    ]
    assert mine[mine.index("--policy.hidden-sizes") + 1 :][:2] == ["256", "256"]


def test_report_holds_the_ratios_and_every_run(tmp_path, monkeypatch):
    speeds = {"concurrent": 300.0, "alternating": 200.0}
    monkeypatch.setattr(
        bench,
        "run",
        lambda name, work, *_: bench.Run(name, 10, 1.0, speeds[name], 5.0 * work.updates_per_step, 3.0),
    )
    assert bench.main(["--quick", "--json", str(tmp_path / "report.json")]) == 0
    content = json.loads((tmp_path / "report.json").read_text())
    assert content["concurrent_over_utd_1"] == content["concurrent_over_utd_0.1"] == 1.5
    assert content["median"]["utd_0.1"]["concurrent"]["updates_per_second"] == 0.5
    assert [run["contender"] for run in content["runs"]["utd_1"]] == ["concurrent", "alternating"]


@pytest.mark.parametrize("contender", bench.CONTENDERS)
@pytest.mark.slow
def test_a_run_takes_the_updates_that_are_owed(contender):
    work = bench.Work("Pendulum-v1", "classic-v1", 2, 64, bench.LEAST_UPDATES, hidden=(8, 8), batch_size=16)
    run = bench.run(contender, work, seed=0, timeout=100)
    assert run.contender == contender
    assert 0 < run.updates <= bench.LEAST_UPDATES + 1
    assert run.env_steps_per_second > 0


def test_a_run_that_owes_updates_is_an_error(monkeypatch, tmp_path, capsys):
    class Process:
        def __init__(self, command, name):
            self.folder = Path(command[command.index("--checkpoint-base-dir") + 1])

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def finish(self, timeout):
            told = rows((600, 1.0, 100), (700, 2.0, 150))
            (self.folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in told))

    monkeypatch.setattr(bench.measure, "Process", Process)
    assert bench.main(["--quick"]) == 1
    assert "concurrent: expected 200 updates" in capsys.readouterr().err


@pytest.mark.parametrize("flags", [("--updates", "3"), ("--repeats", "0"), ("--updates-per-step", "0")])
def test_numbers_are_checked(flags, capsys):
    with pytest.raises(SystemExit):
        bench.main(flags)
    assert "must be at least" in capsys.readouterr().err
