"""The line of a run: live, plain or silent."""

import dataclasses
import io

import numpy as np
from plugrl_env_client.reporting.figures import EpisodeFigures
from plugrl_env_client.reporting.progress import describe, make_progress
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


def test_outside_a_terminal_lines_are_plain_and_rare(capsys):
    progress = make_progress(quiet=False)
    assert progress.interval >= 5
    progress.show(SNAPSHOT)
    progress.close()
    assert capsys.readouterr().err.startswith("12,345 steps, ")


def test_in_a_terminal_the_line_is_live(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    progress = make_progress(quiet=False)
    assert progress.interval < 1
    progress.show(SNAPSHOT)
    progress.close()
    assert "12,345 steps" in terminal.getvalue()


def test_quiet_is_silent(capsys):
    progress = make_progress(quiet=True)
    progress.show(SNAPSHOT)
    progress.close()
    assert capsys.readouterr() == ("", "")
    assert progress.interval == float("inf")
