"""Registering, listing and making policies."""

import dataclasses
import uuid

import numpy as np
import pytest
from plugrl_server.policy.base_policy import BasePolicy, BasePolicyConfig
from plugrl_server.policy.dummy.dummy_policy import DummyPolicy
from plugrl_server.policy.dummy.dummy_policy_config import DummyPolicyConfig
from plugrl_server.policy.registration import list_policies, make_policy, register_policy, register_policy_config


def test_a_policy_is_registered_listed_and_made():
    uid = f"mine-{uuid.uuid4().hex[:6]}"

    @register_policy_config(uid)
    @register_policy_config(uid, "wide")
    @dataclasses.dataclass
    class MyConfig(BasePolicyConfig):
        width: int = 3

    @register_policy(uid)
    class MyPolicy(BasePolicy):
        def get_action_and_runtime_state(self, obs):
            return np.zeros((1, 1, self.config.width)), None

    assert list_policies()[uid] == {"default": MyConfig, "wide": MyConfig}
    policy = make_policy(uid, MyConfig(width=5))
    assert isinstance(policy, MyPolicy)
    assert policy.get_action_and_runtime_state({})[0].shape == (1, 1, 5)


def test_a_builtin_is_made():
    assert isinstance(make_policy("dummy-policy", DummyPolicyConfig()), DummyPolicy)


def test_an_unknown_policy_is_a_key_error_with_a_suggestion():
    with pytest.raises(KeyError) as error:
        make_policy("catgorical_policy", None)
    assert str(error.value) == "'Policy catgorical_policy is not registered.'"
    assert error.value.__notes__ == ["Did you mean categorical-policy?"]
