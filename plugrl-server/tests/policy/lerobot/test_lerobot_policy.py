"""Acting by a policy of lerobot (with a fake of lerobot)."""

import logging

import numpy as np
import pytest
import torch
from plugrl_protocol.spaces import BoxSpace
from plugrl_server.algorithm.evaluation.evaluation import Evaluation
from plugrl_server.algorithm.evaluation.evaluation_config import EvaluationConfig
from plugrl_server.common.config_error import ConfigError
from plugrl_server.policy.lerobot.lerobot_policy import LeRobotPolicy
from plugrl_server.policy.lerobot.lerobot_policy_config import LeRobotPolicyConfig
from plugrl_server.testing import PolicyContract


def policy(folder, **changes):
    return LeRobotPolicy(LeRobotPolicyConfig(policy_path=folder, device="cpu", **changes))


def box(n, bound):
    return BoxSpace((n,), np.dtype("f4"), np.full(n, -bound, "f4"), np.full(n, bound, "f4"))


def test_a_chunk_is_step_after_step_from_a_reset_and_postprocessed(fake_lerobot, obs):
    acting = policy(fake_lerobot(), key_map=("observation.state=base+arm",))
    actions, runtime_state = acting.get_action_and_runtime_state(obs)
    assert (acting.action_horizon, acting.action_dim, runtime_state) == (4, 2, None)
    expected = np.array([[5.0, 1.0], [6.0, 3.0]])[:, None] + np.arange(4)[None, :, None]
    np.testing.assert_array_equal(actions, 10 * expected + 1)
    acting.get_action_and_runtime_state(obs)
    (model,) = fake_lerobot.loaded
    assert model.resets == len(model.batches) == 2
    assert model.batches[0]["task"] == ["push", ""]
    assert "info" not in model.batches[0]


def test_part_of_a_chunk_can_be_used_within_bounds(fake_lerobot, obs):
    acting = policy(fake_lerobot(), action_horizon=2, task="lift")
    acting.adopt_action_space(box(2, 25.0))
    actions, _ = acting.get_action_and_runtime_state(obs)
    assert actions.tolist() == [[[11, 21], [21, 25]], [[25, 25], [25, 25]]]
    assert fake_lerobot.loaded[0].batches[0]["task"] == ["push", "lift"]
    with pytest.raises(ValueError, match="action_dim 3, this policy has 2"):
        acting.adopt_action_space(box(3, 1.0))


def test_without_a_map_states_are_joined_by_name_and_the_only_image_is_taken(fake_lerobot, obs):
    acting = policy(fake_lerobot(images=["wrist"]))
    assert acting.check_observation(obs) is None
    acting.get_action_and_runtime_state(obs)
    batch = fake_lerobot.loaded[0].batches[0]
    assert batch["observation.state"].tolist() == [[1, 2, 5], [3, 4, 6]]
    assert torch.equal(batch["observation.images.wrist"], torch.ones(2, 3, 8, 8))


def test_the_environment_s_state_is_the_one_of_its_name(fake_lerobot, obs):
    acting = policy(fake_lerobot(environment=True))
    obs["states"]["environment_state"] = np.array([[7.0, 8.0], [9.0, 10.0]])
    assert acting.check_observation(obs) is None
    acting.get_action_and_runtime_state(obs)
    batch = fake_lerobot.loaded[0].batches[0]
    assert batch["observation.environment_state"].tolist() == [[7, 8], [9, 10]]
    assert batch["observation.state"].tolist() == [[1, 2, 5], [3, 4, 6]]


def test_a_warm_up_has_every_input(fake_lerobot):
    for options in ({}, {"key_map": ("observation.state=arm+base", "observation.images.top=t")}):
        acting = policy(fake_lerobot(images=["top"]), **options)
        assert acting.get_action_and_runtime_state(acting.fake_obs(3))[0].shape == (3, 4, 2)


def test_observations_that_do_not_fit_are_told_so(fake_lerobot, obs):
    acting = policy(fake_lerobot(images=["top", "side"]))
    assert "lacks side (for observation.images.side" in acting.check_observation(obs)
    acting = policy(fake_lerobot(), key_map=("observation.state=arm",))
    assert acting.check_observation(obs) == "observation.state (from arm) is [2], the policy reads 3"
    acting = policy(fake_lerobot(images=["top"]))
    obs["images"]["top"] = obs["images"]["top"][:, :4]
    assert "observation.images.top (from top) is [4, 8, 3], the policy reads (8, 8, 3)" in acting.check_observation(obs)


def test_what_would_act_otherwise_than_it_was_trained_is_refused(fake_lerobot):
    two = fake_lerobot(n_obs_steps=2)
    with pytest.raises(ConfigError, match=r"the last 2 observations.*--policy\.repeat-observation"):
        policy(two)
    assert policy(two, repeat_observation=True).action_horizon == 4
    with pytest.raises(ConfigError, match="temporal_ensemble_coeff"):
        policy(fake_lerobot(temporal_ensemble_coeff=0.01))
    with pytest.raises(ConfigError, match=r"--policy\.action-horizon 5: this policy's chunks have 4 actions"):
        policy(fake_lerobot(), action_horizon=5)
    with pytest.raises(ConfigError, match=r"names observation.images.x; this policy reads observation.state"):
        policy(fake_lerobot(), key_map=("observation.images.x=top",))


# Noise -----------------------------------------------------------------------------------------------------------

ONE = torch.ones(2, 2)
DRAWS = {
    "randn": (lambda state: torch.randn(state.shape, generator=None, dtype=state.dtype), 0 * ONE),
    "randn by name": (lambda state: torch.randn(size=tuple(state.shape)), 0 * ONE),
    "randn_like": (torch.randn_like, 0 * ONE),
    "normal of a size": (lambda state: torch.normal(mean=2.0, std=1.0, size=state.shape), 2 * ONE),
    "normal of tensors": (lambda state: torch.normal(3 * torch.ones_like(state), torch.ones_like(state)), 3 * ONE),
    "multinomial": (lambda state: torch.multinomial(state.softmax(-1), num_samples=1), torch.tensor([[0.0], [1.0]])),
}


def drawing(folder):
    """What it draws for two states of which the first leans to choice 0, the second to choice 1, [2, H, *]."""
    acting = policy(folder, key_map=("observation.state=arm+base",))
    states = {"arm": np.array([[0.5, 0.0], [0.0, 0.5]]), "base": np.zeros((2, 1))}
    plain = states["arm"][:, None] + np.arange(4)[None, :, None]

    def drawn():
        actions, _ = acting.get_action_and_runtime_state({"images": {}, "states": states, "text": np.array(["", ""])})
        return (actions - 1) / 10 - plain

    return acting, drawn


@pytest.mark.parametrize("draw", DRAWS)
def test_deterministic_takes_the_noise_away(fake_lerobot, draw):
    function, settled = DRAWS[draw]
    acting, drawn = drawing(fake_lerobot(kind="diffusion", draw=function))
    assert drawn().std() > 0.1
    acting.deterministic = True
    expected = np.broadcast_to(settled.numpy()[:, None], (2, 4, 2))
    np.testing.assert_allclose(drawn(), expected, atol=1e-6)
    acting.deterministic = False
    assert any(abs(drawn() - expected).max() > 0.1 for _ in range(9)), "it samples again"


def test_a_type_whose_noise_is_its_search_keeps_it_and_says_so_once(fake_lerobot, caplog):
    acting, drawn = drawing(fake_lerobot(kind="tdmpc", draw=torch.randn_like))
    with caplog.at_level(logging.WARNING):
        drawn()
        assert not caplog.messages
        acting.deterministic = True
        assert drawn().std() > 0.1
        drawn()
    assert caplog.messages == [
        "lerobot-policy cannot take the noise from a policy of type tdmpc: it acts as it samples"
    ]


def test_a_type_that_draws_nothing_acts_alike(fake_lerobot, obs, caplog):
    acting = policy(fake_lerobot(), key_map=("observation.state=base+arm",))
    sampled, _ = acting.get_action_and_runtime_state(obs)
    acting.deterministic = True
    np.testing.assert_array_equal(acting.get_action_and_runtime_state(obs)[0], sampled)
    assert not caplog.messages


def test_eval_acts_without_noise_unless_told_otherwise(fake_lerobot):
    for deterministic in (True, False):
        acting, drawn = drawing(fake_lerobot(kind="smolvla", draw=torch.randn_like))
        Evaluation(EvaluationConfig(num_episodes=2, deterministic=deterministic), acting)
        assert (abs(drawn()).max() < 1e-6) == deterministic


class TestContract(PolicyContract):
    """What every policy keeps to; within bounds that its noise does not leave."""

    action_space = box(2, 5000.0)

    @pytest.fixture(autouse=True)
    def folder(self, fake_lerobot):
        self.saved = fake_lerobot(kind="diffusion", draw=torch.randn_like)

    def make_policy(self):
        acting = policy(self.saved)
        acting.adopt_action_space(self.action_space)
        return acting
