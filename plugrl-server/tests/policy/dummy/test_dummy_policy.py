"""The dummy policy: actions in bounds for any space, built before anyone declares one."""

import numpy as np
import pytest
import torch
from plugrl_protocol.spaces import BoxSpace, DiscreteSpace, MultiBinarySpace, MultiDiscreteSpace
from plugrl_server.policy.action_spaces import to_env_actions
from plugrl_server.policy.dummy.dummy_policy import DummyPolicy
from plugrl_server.policy.dummy.dummy_policy_config import DummyPolicyConfig

HIGH = np.array([0.5, np.inf, 3, np.inf], np.float32)
LOW = np.array([-0.5, -np.inf, -np.inf, 2], np.float32)
SPACES = [
    BoxSpace((4,), np.dtype("f4"), LOW, HIGH),
    BoxSpace((2, 2), np.dtype("i4"), np.zeros((2, 2), "i4"), np.full((2, 2), 3, "i4")),
    DiscreteSpace(3, start=1),
    MultiDiscreteSpace(np.array([2, 5])),
    MultiBinarySpace(3),
]


def observation(n):
    return {"images": {}, "states": {"anything": np.zeros((n, 3))}, "text": np.full(n, "")}


def test_without_a_declaration_there_are_7_numbers_and_4_steps():
    actions, runtime_state = DummyPolicy(DummyPolicyConfig()).get_action_and_runtime_state(observation(3))
    assert actions.shape == (3, 4, 7)
    assert actions.dtype == np.float32
    assert np.abs(actions).max() <= 1
    assert runtime_state is None


@pytest.mark.parametrize("space", SPACES, ids=str)
@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("late", [False, True])
def test_declared_spaces_override(space, deterministic, late):
    policy = DummyPolicy(DummyPolicyConfig(action_space=None if late else space))
    if late:
        policy.adopt_action_space(space)
    policy.deterministic = deterministic
    actions = to_env_actions(space, policy.get_action_and_runtime_state(observation(50))[0])
    assert actions.shape == (50, 4, *space.shape)
    assert actions.dtype == space.dtype
    if isinstance(space, BoxSpace):
        assert (actions >= space.low).all()
        assert (actions <= space.high).all()
    else:
        raw = actions - getattr(space, "start", 0)
        most = {"discrete": 3, "multi_discrete": np.array([2, 5]), "multi_binary": 2}[space.kind]
        assert (raw >= 0).all()
        assert (raw < most).all()
        assert deterministic or len(np.unique(raw)) > 1


def test_action_dim_is_what_the_metadata_says():
    policy = DummyPolicy(DummyPolicyConfig())
    assert policy.action_dim == 7
    policy.adopt_action_space(DiscreteSpace(2))
    assert policy.action_dim is None
    policy.adopt_action_space(MultiDiscreteSpace(np.array([2, 5])))
    assert policy.action_dim == 2


def test_it_is_a_module_with_a_weight_to_save():
    policy = DummyPolicy(DummyPolicyConfig())
    assert isinstance(policy, torch.nn.Module)
    assert set(policy.state_dict()) == {"weight"}


def test_the_seed_fixes_its_actions():
    def first():
        torch.manual_seed(1)
        return DummyPolicy(DummyPolicyConfig()).get_action_and_runtime_state(observation(2))[0]

    np.testing.assert_array_equal(first(), first())
