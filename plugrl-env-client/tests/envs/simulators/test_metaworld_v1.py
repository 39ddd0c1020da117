"""metaworld-v1 on a FAKE Meta-World; on the real one in `testing/test_builtins_keep_the_contract.py` (nightly.yml)."""

import numpy as np
import pytest
from plugrl_env_client.envs.base_env import EnvError
from plugrl_env_client.envs.simulators.metaworld_v1 import MetaworldConfig, make_metaworld
from plugrl_env_client.testing import EnvContract


@pytest.fixture(autouse=True)
def _fakes(fake_metaworld):
    pass


class TestContract(EnvContract):
    def make_env(self, num_envs):
        return make_metaworld(MetaworldConfig(horizon=9, cameras=("corner",), image_size=6), num_envs)


def test_the_default_is_reach_without_images():
    env = make_metaworld(MetaworldConfig(), 2)
    observed = env.reset(0)
    assert observed.states["obs"].shape == (2, 39)
    assert not observed.images
    assert observed.text.tolist() == ["reach", "reach"]
    assert (env.env_id, env.max_episode_steps, env.action_space.shape) == ("metaworld/reach-v3", 500, (4,))


def test_flags_reach_the_task(fake_metaworld):
    flags = {"name": "door-open", "goal_hidden": True, "cameras": ("corner",), "image_size": 6, "horizon": 2}
    env = make_metaworld(MetaworldConfig(**flags, state_keys=()), 1)
    observed = env.reset(0)
    assert env.env_id == "metaworld/door-open-v3"
    assert observed.images["corner"].shape == (1, 6, 6, 3)
    assert not observed.states
    assert [bool(env.step(np.zeros((1, 4), np.float32)).truncated[0]) for _ in range(2)] == [False, True]


def test_the_success_of_an_episode_is_told_at_its_end():
    env = make_metaworld(MetaworldConfig(horizon=4), 1)
    env.reset(0)
    told = [env.step(np.zeros((1, 4), np.float32)).infos for _ in range(4)]
    assert [infos.get("success", [None])[0] for infos in told] == [None, None, None, True]


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ({"name": "door-opn"}, "did you mean door-open-v3"),
        ({"cameras": ("rear",)}, "--env.cameras rear: there is no such camera; known: topview, corner"),
        ({"image_size": 0}, "--env.image-size 0: expected at least 1"),
        ({"horizon": 0}, "--env.horizon 0: expected 1 to 500"),
        ({"horizon": 501}, "--env.horizon 501: expected 1 to 500"),
    ],
)
def test_a_mistake_is_refused_by_flag(flags, says):
    with pytest.raises(EnvError, match=says):
        make_metaworld(MetaworldConfig(**flags), 1)
