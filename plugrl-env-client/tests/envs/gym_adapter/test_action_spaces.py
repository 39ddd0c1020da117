"""Action spaces of Gymnasium as the protocol declares them."""

import numpy as np
import pytest
from gymnasium import spaces
from plugrl_env_client.envs.base_env import EnvError
from plugrl_env_client.envs.gym_adapter.action_spaces import action_space
from plugrl_protocol.spaces import BoxSpace, DiscreteSpace, MultiBinarySpace, MultiDiscreteSpace


def test_the_four_kinds():
    box = action_space(spaces.Box(-1, 2, (3,), np.float32), "env")
    assert isinstance(box, BoxSpace)
    assert (box.shape, box.dtype, box.low.tolist(), box.high.tolist()) == ((3,), np.float32, [-1] * 3, [2] * 3)
    assert action_space(spaces.Discrete(4, start=2), "env") == DiscreteSpace(n=4, start=2)
    assert action_space(spaces.MultiDiscrete([2, 3]), "env") == MultiDiscreteSpace(np.array([2, 3]))
    assert action_space(spaces.MultiBinary(5), "env") == MultiBinarySpace(n=5)


@pytest.mark.parametrize(
    "space",
    [
        spaces.Dict({"a": spaces.Discrete(2)}),
        spaces.Tuple([spaces.Discrete(2)]),
        spaces.Text(3),
        spaces.Box(0, 1, (2,), np.bool_),
        spaces.MultiDiscrete([2], start=[1]),
        spaces.MultiBinary([2, 2]),
    ],
)
def test_everything_else_is_refused_with_the_way_out(space):
    with pytest.raises(EnvError, match=r"my-env takes .*Wrap the env"):
        action_space(space, "my-env")
