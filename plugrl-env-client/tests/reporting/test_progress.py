"""The line of a run: live, plain or silent."""

import io

from plugrl_env_client.reporting.progress import describe, make_progress
from plugrl_env_client.reporting.tally import ConnectionRecord, Snapshot

SNAPSHOT = Snapshot(
    seconds=10.0,
    steps=12_345,
    episodes=7,
    return_sum=70.0,
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
    first = Snapshot(seconds=1.0, steps=5, episodes=0, return_sum=0.0, recent=(), waited=0.0, connections=())
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
