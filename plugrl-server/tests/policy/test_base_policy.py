"""The torch-free contract of a policy."""

import dataclasses

import numpy as np
from plugrl_server.policy.base_policy import BasePolicy, BasePolicyConfig


@dataclasses.dataclass
class CountingConfig(BasePolicyConfig):
    obs_dim: int | None = 3


class Counting(BasePolicy):
    """Hands out the number of calls so far."""

    state_keys = ("arm", "hand")
    action_dim = 2

    def __init__(self, config):
        super().__init__(config)
        self.calls = 0

    def get_action_and_runtime_state(self, obs):
        self.calls += 1
        n = len(obs["text"])
        return np.zeros((n, 1, 2)), {"calls": np.full(n, self.calls)}

    def rng_state(self):
        return self.calls

    def load_rng_state(self, state):
        self.calls = state


def observation(**states):
    return {"images": {}, "states": {name: np.zeros((1, width)) for name, width in states.items()}, "text": [""]}


def test_the_fake_observation_has_the_named_states_and_their_summed_width():
    obs = Counting(CountingConfig()).fake_obs(4)
    assert sum(state.shape[1] for state in obs["states"].values()) == 3
    assert set(obs["states"]) == {"arm", "hand"}
    assert len(obs["text"]) == 4


def test_the_fake_runtime_state_is_a_real_one_and_leaves_the_generators_alone():
    policy = Counting(CountingConfig())
    assert policy.fake_runtime_state(5)["calls"].shape == (5,)
    assert policy.calls == 0


def test_missing_keys_are_named_and_extra_ones_ignored():
    policy = Counting(CountingConfig())
    assert policy.check_observation(observation(arm=1, hand=2, foot=3)) is None
    problem = policy.check_observation(observation(foot=3))
    assert problem == "observation.states lacks arm, hand, which this run's policy reads; sent: foot"


def test_a_policy_that_names_no_keys_takes_what_comes():
    policy = Counting(CountingConfig())
    policy.state_keys = None
    assert policy.check_observation(observation()) is None


def test_the_defaults_fit_a_policy_without_randomness_or_spaces():
    class Still(BasePolicy):
        def get_action_and_runtime_state(self, obs):
            return np.zeros((1, 1, 1)), None

    policy = Still(BasePolicyConfig())
    policy.load_rng_state(policy.rng_state())
    policy.adopt_action_space(None)
    BasePolicyConfig().check()
    assert policy.fake_obs(2)["states"]["state"].shape == (2, 1)
