"""The line of a run: live, plain or silent."""

import dataclasses
import io
import re

import numpy as np
from plugrl_env_client.reporting.figures import EpisodeFigures
from plugrl_env_client.reporting.processes import ProcessStatus
from plugrl_env_client.reporting.progress import Rates, describe, make_progress
from plugrl_env_client.reporting.tally import ConnectionRecord, Snapshot, nothing_yet

SNAPSHOT = Snapshot(
    seconds=10.0,
    steps=12_345,
    env_steps=np.array([12_345]),
    figures=EpisodeFigures.of(1, np.zeros(7, int), np.full(7, 10.0), np.ones(7), np.zeros(7, bool), np.zeros(7, bool)),
    recent=(10.0, 20.0),
    waited=2.5,
    connections=(ConnectionRecord(1, 0, 1, ""),),
    reconnects=1,
)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_lesson_27_the_line_tells_how_it_goes():
    assert describe(SNAPSHOT, 1234.4) == (
        "12,345 steps, 1,234 steps/s, 7 episodes, mean return 15.0, waiting 25%, reconnects 1"
    )


def test_before_the_first_episode_there_is_no_return():
    first = dataclasses.replace(nothing_yet(1), seconds=1.0, steps=5)
    assert describe(first, 5) == "5 steps, 5 steps/s, 0 episodes, waiting 0%"


def process(index=0, *, steps=12_345, seconds=10.0, **settings):
    counted = dataclasses.replace(SNAPSHOT, steps=steps, seconds=seconds)
    return ProcessStatus(index, index, settings.pop("state", "running"), counted, **settings)


def test_outside_a_terminal_lines_are_plain_and_rare(capsys):
    progress = make_progress(quiet=False)
    assert progress.interval >= 5
    progress.show([process()])
    progress.close()
    assert capsys.readouterr().err == (
        "12,345 steps, 1,234 steps/s, 7 episodes, mean return 15.0, waiting 25%, reconnects 1\n"
    )


def test_a_plain_line_sums_up_and_names_what_is_unusual(capsys):
    progress = make_progress(quiet=False)
    down = process(2, is_alive=False, state="restarts in 3 s")
    progress.show([process(0), process(1, state="waiting"), down])
    said = capsys.readouterr().err
    assert said.startswith("37,035 steps, 2,469 steps/s, 21 episodes")
    assert said.endswith("reconnects 3; process 2: restarts in 3 s\n")


def test_a_rate_is_that_between_two_counts():
    rates = Rates()
    assert rates.of(process(steps=100, seconds=10.0)) == 10.0
    assert rates.of(process(steps=160, seconds=12.0)) == 30.0
    assert rates.of(process(steps=160, seconds=12.0)) == 30.0, "nothing new was heard"
    assert rates.of(process(1, steps=160, seconds=16.0)) == 10.0
    assert rates.of(process(steps=160, seconds=12.0, is_alive=False)) == 0.0
    assert rates.of(process(steps=160, seconds=13.0)) == 0.0


def in_a_terminal(monkeypatch, *processes):
    """What appears on it."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "12")
    screen = Terminal()
    with monkeypatch.context() as patched:
        patched.setattr("sys.stderr", screen)
        progress = make_progress(quiet=False)
        assert progress.interval < 1
        progress.show(processes)
        progress.close()
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.getvalue()).replace("\r", "\n")
    return [" ".join(line.split()) for line in text.splitlines()]


def test_in_a_terminal_the_line_is_live(monkeypatch):
    lines = in_a_terminal(monkeypatch, process())
    assert any(line.startswith("12,345 steps, ") for line in lines)


def test_in_a_terminal_several_processes_make_a_table(monkeypatch):
    down = process(1, restarts=2, state="restarts in 3 s", is_alive=False)
    lines = in_a_terminal(monkeypatch, process(), down)
    assert "proc envs steps/s steps episodes return wait reconn state" in lines
    assert "0 0 1,234 12,345 7 15.0 25% 1 running" in lines
    assert "1 1 0 12,345 7 15.0 25% 1 restarts in 3 s (r…" in lines, "the state gives way"
    assert "all 2 1,234 24,690 14 15.0 25% 2" in lines


def test_a_table_that_is_too_high_keeps_its_sum(monkeypatch):
    lines = in_a_terminal(monkeypatch, *(process(index) for index in range(30)))
    assert lines.index("all 30 37,035 370,350 210 15.0 25% 30") <= 12, "drawn within the screen"
    assert "7 7 1,234 12,345 7 15.0 25% 1 running" in lines
    assert ".. 22 more" in lines


def test_quiet_is_silent(capsys):
    progress = make_progress(quiet=True)
    progress.show([process()])
    progress.close()
    assert capsys.readouterr() == ("", "")
    assert progress.interval == float("inf")
