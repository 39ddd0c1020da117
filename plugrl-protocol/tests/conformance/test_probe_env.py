"""What SPEC 8.1 fixes about the probe environment."""

import numpy as np
import pytest
from plugrl_protocol.conformance.probe_env import coded_action, episode_length


def test_episodes_last_3_5_or_7_steps():
    assert [episode_length(env) for env in range(6)] == [3, 5, 7, 3, 5, 7]


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
def test_an_element_tells_its_step_env_and_place(dtype):
    action = coded_action([2, 999], 3, 10, np.dtype(dtype))

    assert action.shape == (3, 2, 10)
    assert action.dtype == dtype
    for step in range(3):
        for row, env in enumerate([2, 999]):
            assert action[step, row].tolist() == [10_000 * step + 10 * env + place for place in range(10)]
