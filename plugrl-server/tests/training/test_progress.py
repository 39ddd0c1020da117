import io

import pytest
from plugrl_server.training.progress import LEARNING, LINE_INTERVAL, Progress
from rich.console import Console


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def screen():
    return io.StringIO()


def progress(screen, clock, *, terminal=False, **options):
    console = Console(file=screen, width=200, force_terminal=terminal, color_system=None)
    return Progress(console, **{"title": "run", "total": 1000, "live": terminal, "clock": clock} | options)


def test_a_line_tells_steps_rate_eta_episodes_return_losses_connections_and_phase(screen, clock):
    """Lesson 27."""
    shown = progress(screen, clock, figures=lambda: (7, {"rollout/reward": 99.0}))
    shown.connected(2)
    clock.now += 99
    shown.stepped(1)
    clock.now += 10
    shown.learned(500, {"rollout/reward": -12.34, "losses/policy_loss": 0.125, "time/x": 1.0})
    assert screen.getvalue().splitlines()[-1] == (
        "collecting | step 500/1,000 (50%) | 50 steps/s | ETA 0:00:10 | 2 clients | 7 episodes | mean return -12.3"
        " | policy_loss 0.125"
    )


def test_lines_come_at_most_every_few_seconds(screen, clock):
    shown = progress(screen, clock)
    for step in range(1, 101):
        clock.now += LINE_INTERVAL / 10
        shown.stepped(step)
    assert len(screen.getvalue().splitlines()) == 10


def test_before_the_first_learn_step_the_mean_return_is_that_of_the_episodes_so_far(screen, clock):
    shown = progress(screen, clock, figures=lambda: (3, {"rollout/reward": 1.5}))
    assert shown.line().endswith("3 episodes | mean return 1.5")


def test_a_long_learn_step_is_told_once_and_a_long_wait_not_at_all(screen, clock):
    shown = progress(screen, clock)
    for _ in range(20):
        clock.now += 1
        shown.tick()
    assert screen.getvalue() == ""
    shown.phase = LEARNING
    for _ in range(20):
        clock.now += 1
        shown.tick()
    assert screen.getvalue().startswith("learning | step 0")
    assert len(screen.getvalue().splitlines()) == 1


def test_the_rate_looks_back_a_bounded_time(screen, clock):
    shown = progress(screen, clock, total=None)
    for step in range(0, 1000, 10):
        clock.now += 1
        shown.stepped(step)
    for step in range(1000, 5000, 100):
        clock.now += 1
        shown.stepped(step)
    assert shown.rate == pytest.approx(100, rel=0.01)
    assert shown.eta is None
    assert len(shown._samples) < 100


def test_a_resumed_run_counts_its_rate_from_where_it_resumed(screen, clock):
    shown = progress(screen, clock, step=900)
    clock.now += 60
    shown.stepped(901)
    clock.now += 1
    shown.stepped(911)
    assert shown.rate == pytest.approx(10)
    assert shown.eta == pytest.approx(8.9)
    assert shown.busy == 1


def test_nothing_is_known_before_the_first_step(screen, clock):
    shown = progress(screen, clock)
    assert shown.line() == "waiting for client | step 0/1,000 (0%) | 0 steps/s | 0 clients | 0 episodes"


def test_the_phase_follows_the_connections_but_not_while_learning(screen, clock):
    shown = progress(screen, clock)
    shown.connected(1)
    assert shown.phase == "collecting"
    shown.enter(LEARNING)
    shown.connected(0)
    assert shown.phase == "learning"
    shown.enter("collecting")
    shown.connected(0)
    assert shown.phase == "waiting for client"


def test_the_metric_table_shows_every_metric_the_known_groups_first(screen, clock):
    shown = progress(screen, clock, metric_table=True)
    shown.learned(8, {"zeta/x": 1.0, "losses/value_loss": float("nan"), "rollout/reward": 2.0})
    text = screen.getvalue()
    assert text.index("rollout/reward") < text.index("losses/value_loss") < text.index("zeta/x")
    assert "not a number" in text
    assert "step 8" in text


def test_the_live_panel_shows_the_same_and_messages_go_above_it(screen, clock):
    shown = progress(screen, clock, terminal=True)
    shown.start()
    shown.connected(1)
    shown.stepped(1)
    clock.now += 2
    shown.learned(101, {"losses/policy_loss": 0.5})
    shown.say("checkpoint saved")
    shown.close()
    text = screen.getvalue()
    for part in ("run", "step 101/1,000 (10%)", "50 steps/s", "ETA 0:00:18", "collecting", "1 client", "policy_loss"):
        assert part in text
    assert "checkpoint saved" in text


def test_a_run_of_no_steps_is_complete(screen, clock):
    assert "(100%)" in progress(screen, clock, total=0).line()
