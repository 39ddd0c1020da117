import importlib.util

import numpy as np
import pytest
import sac_learners

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("stable_baselines3") is None, reason="Stable-Baselines3 is in the dependency group bench"
)

SETTINGS = sac_learners.SACSettings(frames=50, hidden=(16, 16), batch_size=8)


@pytest.fixture(scope="module")
def frames():
    return sac_learners.Frames.random(50)


def test_both_learn_from_the_same_frames(frames):
    ours, theirs = sac_learners.ours(SETTINGS, frames), sac_learners.StableBaselines3(SETTINGS, frames)
    mine, buffer = ours.replay.frames(np.arange(50)), theirs.model.replay_buffer
    np.testing.assert_array_equal(mine.obs, buffer.observations[:, 0])
    np.testing.assert_array_equal(mine.next_obs, buffer.next_observations[:, 0])
    np.testing.assert_array_equal(mine.action, buffer.actions[:, 0])
    np.testing.assert_array_equal(mine.reward, buffer.rewards[:, 0])
    np.testing.assert_array_equal(mine.terminated, buffer.dones[:, 0])


def test_both_have_the_same_networks_and_take_as_many_updates(frames):
    ours, theirs = sac_learners.ours(SETTINGS, frames), sac_learners.StableBaselines3(SETTINGS, frames)
    policy, model = ours.policy, theirs.model
    assert _numbers(policy.actor_parameters()) == _numbers(model.actor.parameters())
    assert _numbers(policy.critic_parameters()) == _numbers(model.critic.parameters())
    ours.update(4)
    theirs.update(4)
    assert ours.updates == model._n_updates == 4
    assert ours.target_entropy == model.target_entropy


def _numbers(parameters):
    return sum(parameter.numel() for parameter in parameters)
