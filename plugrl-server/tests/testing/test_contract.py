"""What both contracts share."""

import dataclasses
from typing import ClassVar

import numpy as np
import pytest
import torch
from plugrl_protocol.spaces import DiscreteSpace
from plugrl_server.policy.base_policy import BasePolicyConfig
from plugrl_server.testing.contract import Contract, act_alike, changed, weights


class Seeing(Contract):
    action_space = DiscreteSpace(4)
    states: ClassVar = {"b": 2, "a": 3}
    images: ClassVar = {"camera": (8, 8, 3)}


@dataclasses.dataclass
class Sized(BasePolicyConfig):
    obs_dim: int | None = None
    action_dim: int | None = None
    state_keys: tuple[str, ...] | None = None
    image_keys: tuple[str, ...] | None = None


def test_a_configuration_is_sized_as_by_a_declaration():
    config = Seeing().sized(Sized(image_keys=()))
    assert (config.obs_dim, config.action_dim, config.state_keys) == (5, 4, ("a", "b"))


@pytest.mark.parametrize(("contract", "name"), [(Contract, "GaussianPolicy"), (Seeing, "CategoricalPolicy")])
def test_the_default_policy_acts_in_the_declared_space(contract, name):
    class Blind(contract):
        images: ClassVar = {}

    assert type(Blind().make_policy()).__name__ == name


def test_the_environment_is_the_declared_one():
    env = Seeing().make_env(2)
    assert env.obs["images"]["camera"].shape == (2, 8, 8, 3)
    assert {key: state.shape for key, state in env.obs["states"].items()} == {"b": (2, 2), "a": (2, 3)}
    assert Seeing().make_env().num_envs == Seeing.num_envs


def test_acting_alike_draws_the_same_numbers():
    class Acting:
        def __init__(self, policy):
            self.policy = policy

        def infer(self, obs):
            return self.policy.get_action_and_runtime_state(obs)

    contract = Contract()
    contract.seed(0)
    one, other = contract.make_policy(), contract.make_policy()
    other.load_state_dict(one.state_dict())
    first, second = act_alike(Acting(one), Acting(other), contract.make_env().obs)
    assert np.array_equal(first, second)


def test_changed_weights_are_named_and_a_copy_is_kept():
    module = torch.nn.Linear(2, 1)
    before = weights(module)
    assert changed(before, weights(module)) == set()
    with torch.no_grad():
        module.bias += 1
    assert changed(before, weights(module)) == {"bias"}
    assert weights(object()) == {}
