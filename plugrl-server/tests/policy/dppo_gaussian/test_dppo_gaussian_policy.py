"""The DPPO paper's Gaussian policy: units, deviations, densities, and that PPO trains it."""

import copy
import math

import numpy as np
import pytest
import torch
from plugrl_protocol.spaces import BoxSpace, DiscreteSpace
from plugrl_server.algorithm.base_algorithm import NO_NODE
from plugrl_server.algorithm.ppo.ppo import PPO
from plugrl_server.algorithm.ppo.ppo_config import PPOConfig
from plugrl_server.common.config_error import ConfigError
from plugrl_server.policy.dppo_gaussian.dppo_gaussian_policy import DPPOGaussianPolicy
from plugrl_server.policy.dppo_gaussian.dppo_gaussian_policy_config import DPPOGaussianPolicyConfig

LOW, HIGH = np.array([0.0, -4.0], np.float32), np.array([10.0, -2.0], np.float32)


def policy(**changes):
    torch.manual_seed(0)
    sizes = {"actor_hidden_sizes": (16, 16, 16), "critic_hidden_sizes": (16, 16, 16), "action_horizon": 3}
    config = DPPOGaussianPolicyConfig(**{"obs_dim": 3, "action_dim": 2, "device": "cpu", **sizes, **changes})
    config.check()
    return DPPOGaussianPolicy(config)


def observation(n):
    states = np.random.default_rng(1).standard_normal((n, 3))
    return {"images": {}, "states": {"s": states}, "text": np.full(n, "")}


def set_to(parameter, value):
    with torch.no_grad():
        parameter.fill_(value)


def test_samples_are_in_units_of_the_bounds_and_actions_within_them():
    acting = policy(action_space=BoxSpace((2,), np.dtype("f4"), LOW, HIGH))
    set_to(acting.actor[0][-1].bias, 50.0)  # the tanh leaves a mean of 1
    acting.deterministic = True
    actions, runtime_state = acting.get_action_and_runtime_state(observation(5))
    assert actions.shape == (5, 3, 2)
    np.testing.assert_allclose(runtime_state["sample"], 1.0)
    np.testing.assert_allclose(actions, np.broadcast_to(HIGH, (5, 3, 2)))
    acting.deterministic = False
    actions, runtime_state = acting.get_action_and_runtime_state(observation(500))
    assert runtime_state["sample"].max() > 1.1
    assert ((actions >= LOW) & (actions <= HIGH)).all()


def test_a_space_declared_later_is_adopted_or_refused():
    acting = policy()
    np.testing.assert_array_equal(acting.to_actions(np.ones((1, 3, 2), np.float32)), np.ones((1, 3, 2)))
    acting.adopt_action_space(BoxSpace((2,), np.dtype("f4"), LOW, HIGH))
    np.testing.assert_allclose(acting.to_actions(np.full((1, 3, 2), -1, np.float32))[0, 0], LOW)
    with pytest.raises(ValueError, match=r"dppo-gaussian-policy needs a Box action space, got Discrete\(2\)"):
        acting.adopt_action_space(DiscreteSpace(2))


def test_log_probability_and_entropy_are_means_over_the_chunk():
    acting = policy()
    obs = observation(6)
    features = acting.features(acting.observe(obs))
    sample = torch.from_numpy(acting.get_action_and_runtime_state(obs)[1]["sample"])
    log_prob, entropy, value = acting.evaluate(features, sample)
    reference = torch.distributions.Normal(acting.actor(features), torch.full((6,), 0.1))
    torch.testing.assert_close(log_prob, reference.log_prob(sample).mean(-1))
    torch.testing.assert_close(entropy, reference.entropy().mean(-1).expand(6))
    torch.testing.assert_close(value, acting.critic(features)[:, 0])


def test_a_learned_deviation_starts_at_std_stays_in_bounds_and_always_has_a_gradient():
    acting = policy(std=0.05)
    torch.testing.assert_close(acting.log_deviations().exp(), torch.full((6,), 0.05))
    for raw, bound in ((-30.0, 0.01), (30.0, 0.2)):
        set_to(acting.raw_std, raw)
        torch.testing.assert_close(acting.log_deviations().exp(), torch.full((6,), bound))
    set_to(acting.raw_std, 8.0)
    acting.log_deviations().sum().backward()
    assert (acting.raw_std.grad > 0).all()
    with torch.no_grad():
        acting.raw_std.copy_(torch.tensor([0.0, 8.0]))
    deviations = acting.log_deviations().reshape(3, 2)
    assert torch.equal(deviations[0], deviations[2])
    assert deviations[0, 0] != deviations[0, 1]


def test_a_fixed_deviation_is_no_parameter():
    acting = policy(learn_std=False, std=0.5)
    torch.testing.assert_close(acting.log_deviations(), torch.full((6,), math.log(0.5)))
    assert {name.split(".")[0] for name, _ in acting.named_parameters()} == {"actor", "critic"}
    assert "fixed_log_std" in acting.state_dict()


def test_inference_gives_what_learning_sees():
    acting = policy()
    acting.update_normalizer(torch.randn(100, 3) * 4 + 2)
    obs = observation(7)
    with torch.no_grad():
        learner = acting.outputs_and_value(acting.features(acting.observe(obs)))[0]
    np.testing.assert_allclose(acting.actor_outputs(obs), learner.numpy(), atol=1e-6)


def learn(algorithm, rounds):
    """Rewards of a bandit whose best chunk is 0.5 everywhere."""
    for _ in range(rounds):
        while not algorithm.should_learn():
            obs = observation(32)
            actions, runtime_state = algorithm.infer(obs)
            reward = -np.square(actions - 0.5).mean((1, 2))
            algorithm.rollout.add(
                obs=algorithm.policy.observe(obs),
                train_state=algorithm.derive_train_state(runtime_state),
                next_obs=algorithm.policy.observe(obs),
                reward=reward.astype(np.float32),
                terminated=np.ones(32, bool),
                truncated=np.zeros(32, bool),
                nodes=[NO_NODE] * 32,
            )
        algorithm.learn()
    return reward.mean()


@pytest.mark.parametrize("learn_std", [True, False])
def test_ppo_trains_it_actor_and_critic_apart(learn_std):
    config = PPOConfig(
        buffer_size=128,
        batch_size=64,
        clip_coef=0.2,
        learning_rate=1e-2,
        critic_learning_rate=1e-2,
        anneal_learning_rate=False,
        critic_warmup_iterations=1,
    )
    algorithm = PPO(config, policy(learn_std=learn_std))
    before = copy.deepcopy(algorithm.policy.actor.state_dict())
    first = learn(algorithm, 1)
    assert all(torch.equal(weight, before[name]) for name, weight in algorithm.policy.actor.state_dict().items())
    assert first < -0.2
    assert learn(algorithm, 15) > -0.05


def test_a_missing_dimension_is_refused_with_the_flag():
    with pytest.raises(ConfigError, match=r"dppo-gaussian-policy needs --policy\.action-dim"):
        policy(action_dim=None)
