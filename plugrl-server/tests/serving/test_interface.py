"""Options are checked where they are made (lesson 6: time-outs are validated)."""

import math

import pytest
from plugrl_server.serving.interface import Ending, ServingOptions


@pytest.mark.parametrize(
    "name", ["feedback_wait_timeout", "ping_interval", "ping_timeout", "open_timeout", "close_timeout"]
)
@pytest.mark.parametrize("value", [0, -1, math.inf, math.nan])
def test_timeouts_are_finite_and_positive(name, value):
    with pytest.raises(ValueError, match=f"{name}: expected a finite time above 0 s, got {value}"):
        ServingOptions(**{name: value})


@pytest.mark.parametrize("name", ["infer_wait_ms", "spin_us", "stop_grace"])
def test_waits_may_be_zero_but_not_negative(name):
    ServingOptions(**{name: 0})
    with pytest.raises(ValueError, match=f"{name}: expected a finite time of 0 or more, got -1"):
        ServingOptions(**{name: -1})


@pytest.mark.parametrize("name", ["mini_infer_batch_size", "deterministic", "max_frame"])
def test_counts_are_at_least_one(name):
    with pytest.raises(ValueError, match=f"{name}: expected at least 1, got 0"):
        ServingOptions(**{name: 0})


def test_a_run_that_ends_well_tells_its_clients_so():
    ending = Ending("finished")
    assert (ending.exit_code, ending.save, str(ending.close)) == (0, True, "1001 plugrl-server-stop")
