"""The dummy algorithm's configuration."""

import math

import pytest
from plugrl_server.algorithm.dummy.dummy_config import DummyAlgoConfig
from plugrl_server.common.config_error import ConfigError


def test_it_runs_1000_steps_and_never_learns_sleeps_or_saves_unless_asked():
    config = DummyAlgoConfig()
    assert config.global_steps == 1000
    assert (config.learn_every, config.save_interval, config.infer_sleep_ms, config.learn_sleep_ms) == (
        None,
        None,
        0,
        0,
    )
    assert config.policies is None
    config.check()


@pytest.mark.parametrize(
    "change",
    [
        {"learn_every": 0},
        {"save_interval": -1},
        {"infer_sleep_ms": -1},
        {"learn_sleep_ms": math.nan},
        {"global_steps": 0},
    ],
)
def test_what_cannot_work_is_refused_with_the_flag(change):
    (name,) = change
    with pytest.raises(ConfigError, match=f"--algo.{name.replace('_', '-')} "):
        DummyAlgoConfig(**change).check()
