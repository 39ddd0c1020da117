"""The categorical policy: shapes, probabilities and densities for Discrete, MultiDiscrete and MultiBinary."""

import numpy as np
import pytest
import torch
from plugrl_protocol.spaces import BoxSpace, DiscreteSpace, MultiBinarySpace, MultiDiscreteSpace
from plugrl_server.common.config_error import ConfigError
from plugrl_server.policy.action_spaces import choices
from plugrl_server.policy.categorical.categorical_policy import CategoricalPolicy
from plugrl_server.policy.categorical.categorical_policy_config import CategoricalPolicyConfig

SPACES = [
    DiscreteSpace(3, start=4),
    MultiDiscreteSpace(np.array([2, 4])),
    MultiDiscreteSpace(np.array([[3, 3], [3, 3]])),
    MultiBinarySpace(3),
]


def policy(space=None, **changes):
    torch.manual_seed(0)
    config = CategoricalPolicyConfig(obs_dim=3, action_space=space, device="cpu", **changes)
    made = CategoricalPolicy(config)
    with torch.no_grad():
        made.actor[-1].weight.mul_(100)  # far from uniform, so that mistakes show
    return made


def observation(n, repeat=False):
    states = np.random.default_rng(1).standard_normal((n, 3))
    return {"images": {}, "states": {"s": np.repeat(states[:1], n, 0) if repeat else states}, "text": np.full(n, "")}


def reference(acting, features):
    """The logits of each part as torch distributions."""
    outputs = acting.actor(features)
    per_part = choices(acting._space) * acting.action_horizon
    return [torch.distributions.Categorical(logits=logits) for logits in outputs.split(per_part, -1)]


@pytest.mark.parametrize("space", SPACES, ids=str)
@pytest.mark.parametrize("horizon", [1, 2])
def test_actions_have_the_shape_of_the_space_and_start_at_0(space, horizon):
    actions, runtime_state = policy(space, action_horizon=horizon).get_action_and_runtime_state(observation(200))
    assert actions.shape == (200, horizon, *space.shape)
    assert actions.dtype.kind == "i"
    assert (actions.min(), runtime_state["sample"].shape) == (0, (200, horizon * len(choices(space))))
    assert (actions.reshape(200, horizon, -1) < np.array(choices(space))).all()


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_choices_are_drawn_with_their_probabilities(space):
    acting = policy(space)
    obs = observation(20_000, repeat=True)
    sample = acting.get_action_and_runtime_state(obs)[1]["sample"]
    features = acting.features(torch.from_numpy(acting.observe(obs)[:1]))
    for part, distribution in enumerate(reference(acting, features)):
        drawn = np.bincount(sample[:, part], minlength=len(distribution.probs[0])) / len(sample)
        np.testing.assert_allclose(drawn, distribution.probs[0].detach().numpy(), atol=0.015)


@pytest.mark.parametrize("space", SPACES, ids=str)
@pytest.mark.parametrize("horizon", [1, 2])
def test_densities_and_entropies_are_those_of_torch_distributions(space, horizon):
    acting = policy(space, action_horizon=horizon)
    obs = observation(30)
    features = acting.features(torch.from_numpy(acting.observe(obs)))
    sample = torch.from_numpy(acting.get_action_and_runtime_state(obs)[1]["sample"])
    log_prob, entropy, value = acting.evaluate(features, sample)
    parts = reference(acting, features)
    torch.testing.assert_close(log_prob, sum(part.log_prob(sample[:, i]) for i, part in enumerate(parts)))
    torch.testing.assert_close(entropy, sum(part.entropy() for part in parts))
    torch.testing.assert_close(value, acting.critic(features)[:, 0])
    assert torch.isfinite(torch.autograd.grad((log_prob + entropy).sum(), acting.actor[0].weight)[0]).all()


def test_deterministic_takes_the_likeliest():
    acting = policy(DiscreteSpace(3))
    acting.deterministic = True
    obs = observation(10)
    expected = acting.actor_outputs(obs).argmax(-1)
    np.testing.assert_array_equal(acting.get_action_and_runtime_state(obs)[0][:, 0], expected)


def test_without_a_declaration_action_dim_counts_the_choices():
    acting = policy(action_dim=4)
    assert acting.get_action_and_runtime_state(observation(5))[0].shape == (5, 1)
    acting.adopt_action_space(DiscreteSpace(4, start=1))
    with pytest.raises(ValueError, match="action_dim 2, this run has 4"):
        acting.adopt_action_space(DiscreteSpace(2))
    with pytest.raises(ValueError, match=r"action space MultiDiscrete\(.*\), this run has Discrete\(4, start=1\)"):
        acting.adopt_action_space(MultiDiscreteSpace(np.array([2, 2])))
    with pytest.raises(ValueError, match="needs a Discrete action space"):
        acting.adopt_action_space(BoxSpace((1,), np.dtype("f4"), np.zeros(1, "f4"), np.ones(1, "f4")))
    with pytest.raises(ConfigError, match=r"needs --policy\.action-dim"):
        policy()


def test_action_dim_is_what_the_metadata_says():
    assert policy(DiscreteSpace(3)).action_dim is None
    assert policy(MultiDiscreteSpace(np.array([2, 4]))).action_dim == 2


def test_lesson_3_lost_weights_give_nan_actions():
    acting = policy(DiscreteSpace(2))
    with torch.no_grad():
        acting.actor[0].weight.fill_(torch.nan)
    assert np.isnan(acting.get_action_and_runtime_state(observation(2))[0]).all()
