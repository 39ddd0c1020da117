"""Every built-in family that can run here keeps the contract, in every vectorisation; the others say why not."""

import functools
import os
from typing import ClassVar

import gymnasium
import numpy as np
import pytest
from plugrl_env_client.envs.gym_adapter.vector_env import GymVectorEnv
from plugrl_env_client.registration import BUILT_IN, env_config, make_env
from plugrl_env_client.testing import EnvContract

KEPT = {}


class Family(EnvContract):
    """A family with some flags."""

    uid: ClassVar[str]
    flags: ClassVar[dict] = {}

    def __init_subclass__(cls):
        if hasattr(cls, "uid"):
            KEPT[cls.uid] = cls

    def make_env(self, num_envs):
        family = BUILT_IN[self.uid]
        if not family.installed:
            pytest.importorskip(family.needs, reason=f"{self.uid} needs {family.needs}: {family.install_command}")
        return make_env(self.uid, env_config(self.uid)(**self.flags), num_envs)


class TestDummy(Family):
    uid = "dummy-v1"
    flags: ClassVar = {"images": ("left", "right"), "image_size": 8, "action_dim": 2}
    random_starts = False
    deterministic = False  # it numbers its envs and its episodes, over all resets


class TestDummyWithoutASpace(TestDummy):
    flags: ClassVar = {}


class TestProbe(Family):
    uid = "probe-v1"
    random_starts = False

    def test_env_i_is_seeded_with_seed_plus_i(self):
        pytest.skip("SPEC 8.1: env i differs from env 0 by its index, not by its seed")


class TestCartPole(Family):
    uid = "classic-v1"


class TestPendulum(Family):
    uid = "classic-v1"
    flags: ClassVar = {"name": "Pendulum-v1"}


class TestFrozenLake(Family):
    uid = "classic-v1"
    flags: ClassVar = {"name": "FrozenLake-v1"}


class TestGym(Family):
    uid = "gym-v1"
    flags: ClassVar = {"id": "Acrobot-v1", "kwargs": ("max_episode_steps=40",)}


class TestGymSync(TestGym):
    flags: ClassVar = {**TestGym.flags, "vectorization": "sync"}


class TestGymBlackjack(Family):
    """A Tuple of Discrete spaces; one card more or none."""

    uid = "gym-v1"
    flags: ClassVar = {"id": "Blackjack-v1"}


class TestCartPoleOwn(Family):
    """Gymnasium's vectorised CartPole: SAME_STEP or NEXT_STEP, as the release has it; one generator for all envs."""

    uid = "classic-v1"
    flags: ClassVar = {"vectorization": "own"}

    def test_env_i_is_seeded_with_seed_plus_i(self):
        pytest.skip("its vector form draws all envs from one generator")

    def test_reset_indices_leaves_the_others_alone(self):
        pytest.skip("its vector form draws all envs from one generator")


class TestNextStep(EnvContract):
    """A vector env that resets rows in its next step."""

    def make_env(self, num_envs):
        make = functools.partial(gymnasium.make, "CartPole-v1")
        return GymVectorEnv(gymnasium.vector.SyncVectorEnv([make] * num_envs), env_id="CartPole-v1")


class TestSameStep(EnvContract):
    """A vector env that shows the next episode in the step that ends one."""

    def make_env(self, num_envs):
        make = functools.partial(gymnasium.make, "CartPole-v1")
        mode = gymnasium.vector.AutoresetMode.SAME_STEP
        vector = gymnasium.vector.SyncVectorEnv([make] * num_envs, autoreset_mode=mode)
        return GymVectorEnv(vector, env_id="CartPole-v1")


class TestMujoco(Family):
    uid = "mujoco-v1"
    flags: ClassVar = {"name": "Hopper-v5"}


class TestAtari(Family):
    uid = "atari-v1"
    flags: ClassVar = {"name": "Breakout", "screen_size": 40, "frame_stack": 2}


class TestPusht(Family):
    uid = "pusht-v1"


class TestRobotics(Family):
    uid = "robotics-v1"


class TestMetaworld(Family):
    uid = "metaworld-v1"
    flags: ClassVar = {"kwargs": ("max_episode_steps=30",)}


@pytest.mark.slow
class TestRobomimic(Family):
    uid = "robomimic-v1"
    flags: ClassVar = {"horizon": 12}
    num_envs = 2


rendered = pytest.mark.skipif("MUJOCO_GL" not in os.environ, reason="MUJOCO_GL says how to render without a screen")


@rendered
def test_metaworlds_images_are_upright():
    pytest.importorskip("metaworld")
    env = make_env("metaworld-v1", env_config("metaworld-v1")(cameras=("corner2",), image_size=32), 1)
    image = env.reset(0).images["corner2"][0].astype(float)
    red = np.maximum(image[..., 0] - image[..., 1:].mean(axis=-1), 0)  # of the arm
    assert red[:, :16].sum() > red[:, 16:].sum(), "the arm is on the left, as Meta-World's own pictures show it"
    env.close()


@rendered
def test_robomimics_images_are_upright():
    pytest.importorskip("robosuite")
    env = make_env("robomimic-v1", env_config("robomimic-v1")(cameras=("agentview",), image_size=32), 1)
    image = env.reset(0).images["agentview_image"][0]
    assert image[:4].mean() < image[-4:].mean(), "the dark robot is at the top, the white table below"
    env.close()


def test_no_family_is_forgotten():
    assert set(KEPT) == set(BUILT_IN) - {"libero-v1"}, "libero's scenes come from outside the registry: fakes only"
