"""A sound policy keeps the contract; for every clause there is a broken one that fails that clause and no other."""

from unittest import SkipTest

import numpy as np
import pytest
import torch
from plugrl_protocol.spaces import BoxSpace
from plugrl_server.policy.base_policy import BasePolicy, BaseTorchPolicyConfig
from plugrl_server.policy.base_torch_policy import BaseTorchPolicy
from plugrl_server.testing import ContractBroken, PolicyContract

IMAGE = (4, 4, 3)


class Config(BaseTorchPolicyConfig):
    obs_dim = 3


class Toy(BaseTorchPolicy):
    """Two actions in a chunk from one state and the mean of one image."""

    action_horizon, action_dim = 2, 2
    state_keys, image_keys = ("obs",), ("camera",)

    def __init__(self):
        super().__init__(Config(device="cpu"))
        self.layer = torch.nn.Linear(4, 4)

    def get_action_and_runtime_state(self, obs):
        read = np.concatenate([obs["states"]["obs"], obs["images"]["camera"].mean((1, 2, 3))[:, None] / 255], 1)
        with torch.no_grad():
            mean = torch.tanh(self.layer(torch.from_numpy(read).float())).numpy()
        sample = mean if self.deterministic else mean + self.noise(mean.shape)
        return sample.reshape(-1, 2, 2).clip(-1, 1), {"sample": sample, "nothing": None}

    def noise(self, shape):
        return self.rng.standard_normal(shape, dtype=np.float32)

    def fake_obs(self, n):
        return {
            "images": {"camera": np.zeros((n, *IMAGE), np.uint8)},
            "states": {"obs": np.zeros((n, 3))},
            "text": np.full(n, ""),
        }

    def check_observation(self, obs):
        if (problem := super().check_observation(obs)) is not None:
            return problem
        width = obs["states"]["obs"].shape[1]
        return None if width == 3 else f"obs_dim {width}, this run has 3"


class Flat(Toy):
    def get_action_and_runtime_state(self, obs):
        action, state = super().get_action_and_runtime_state(obs)
        return action[:, :1], state


class Unbounded(Toy):
    def get_action_and_runtime_state(self, obs):
        action, state = super().get_action_and_runtime_state(obs)
        return action + 1, state


class Infinite(Toy):
    def get_action_and_runtime_state(self, obs):
        action, state = super().get_action_and_runtime_state(obs)
        far = np.abs(obs["states"]["obs"]).max(1) > 50
        return np.where(far[:, None, None], np.float32(np.nan), action), state


class NeverStill(Toy):
    """Two calls in a row differ, whatever the mode; the rows of one call do not."""

    calls = 0

    def get_action_and_runtime_state(self, obs):
        action, state = super().get_action_and_runtime_state(obs)
        self.calls += self.deterministic
        return (action + 1e-6 * (self.calls % 2)).clip(-1, 1).astype(np.float32), state


class LooksAround(Toy):
    def get_action_and_runtime_state(self, obs):
        action, state = super().get_action_and_runtime_state(obs)
        return (action - action.mean(0, keepdims=True) / 2).clip(-1, 1), state


class ScalesInPlace(Toy):
    def get_action_and_runtime_state(self, obs):
        answer = super().get_action_and_runtime_state(obs)
        obs["states"]["obs"] += 0.0 if self.deterministic else 1.0
        return answer


class KeepsOneForAll(Toy):
    def get_action_and_runtime_state(self, obs):
        action, state = super().get_action_and_runtime_state(obs)
        return action, {**state, "std": np.ones(3)}

    def fake_runtime_state(self, n):
        return self.get_action_and_runtime_state(self.fake_obs(n))[1] if n < 0 else Faked(self, n).state


class Faked:
    """A runtime state that has its rows right even where the real one has not."""

    def __init__(self, policy, n):
        generators = policy.rng_state()
        self.state = policy.get_action_and_runtime_state(policy.fake_obs(n))[1]
        self.state["std"] = np.ones(n)
        policy.load_rng_state(generators)


class FakesTooLittle(Toy):
    def fake_obs(self, n):
        return {**super().fake_obs(n), "images": {}}

    def fake_runtime_state(self, n):
        obs = {**super().fake_obs(n)}
        generators = self.rng_state()
        state = self.get_action_and_runtime_state(obs)[1]
        self.load_rng_state(generators)
        return state


class FakesInDouble(Toy):
    def fake_runtime_state(self, n):
        return {"sample": np.zeros((n, 4)), "nothing": None}


class FakesByDrawing(Toy):
    def fake_runtime_state(self, n):
        return self.get_action_and_runtime_state(self.fake_obs(n))[1]


class HidesItsGenerator(Toy):
    """Draws from a second generator, seeded alike in every process."""

    def __init__(self):
        super().__init__()
        self.hidden = np.random.default_rng(0)

    def noise(self, shape):
        return self.hidden.standard_normal(shape, dtype=np.float32)


class HidesAWeight(Toy):
    def __init__(self):
        super().__init__()
        self.gain = float(torch.rand(()))

    def get_action_and_runtime_state(self, obs):
        action, state = super().get_action_and_runtime_state(obs)
        return (self.gain * action).astype(np.float32), state


class RefusesAll(Toy):
    def check_observation(self, obs):
        camera = obs["images"].get("camera")
        return super().check_observation(obs) or (None if camera is None or not camera.any() else "too bright")


class AcceptsTheBlind(Toy):
    def check_observation(self, obs):
        return super().check_observation(obs) if "obs" in obs["states"] and "camera" in obs["images"] else None


class AcceptsAnyWidth(Toy):
    def check_observation(self, obs):
        return BasePolicy.check_observation(self, obs)


BROKEN = {
    Flat: "actions_have_the_declared_shape_and_dtype",
    Unbounded: "actions_are_finite_and_in_bounds",
    Infinite: "actions_are_finite_and_in_bounds",
    NeverStill: "deterministic_actions_repeat",
    LooksAround: "a_row_alone_gets_the_action_it_gets_in_a_batch",
    ScalesInPlace: "acting_changes_nothing_but_the_generators",
    KeepsOneForAll: "every_leaf_of_the_runtime_state_has_a_row_per_environment",
    FakesTooLittle: "fake_observations_can_be_read",
    FakesInDouble: "fake_runtime_states_are_like_real_ones",
    FakesByDrawing: "fake_runtime_states_are_like_real_ones",
    HidesItsGenerator: "the_random_state_is_restored",
    HidesAWeight: "the_weights_are_restored",
    RefusesAll: "check_observation_accepts_what_was_declared",
    AcceptsTheBlind: "check_observation_refuses_missing_keys",
    AcceptsAnyWidth: "check_observation_refuses_wrong_widths",
}
CLAUSES = [name.removeprefix("test_") for name in dir(PolicyContract) if name.startswith("test_")]


def contract(policy, **attributes):
    names = {"make_policy": lambda self: policy(), "images": {"camera": IMAGE}, **attributes}
    return type("TestIt", (PolicyContract,), names)()


def broken_clauses(kept):
    broken = []
    for clause in CLAUSES:
        try:
            getattr(kept, f"test_{clause}")()
        except ContractBroken:
            broken.append(clause)
        except SkipTest:
            pass
    return broken


def test_a_sound_policy_keeps_every_clause():
    assert broken_clauses(contract(Toy)) == []


@pytest.mark.parametrize("policy", BROKEN, ids=lambda policy: policy.__name__)
def test_a_broken_policy_fails_its_clause_and_no_other(policy):
    assert broken_clauses(contract(policy)) == [BROKEN[policy]]


def test_every_clause_has_a_broken_policy():
    assert set(CLAUSES) == set(BROKEN.values())


def test_actions_of_another_kind_of_number_are_refused():
    whole = BoxSpace((2,), np.dtype("<i4"), np.full(2, -1, "<i4"), np.full(2, 1, "<i4"))
    with pytest.raises(ContractBroken, match="actions are float32, expected int32"):
        contract(Toy, action_space=whole).test_actions_have_the_declared_shape_and_dtype()


def test_a_policy_without_a_deterministic_mode_may_say_so():
    class Noisy(Toy):
        deterministic = property(lambda self: False, lambda self, on: None)

    broken = broken_clauses(contract(Noisy))
    assert broken == ["a_row_alone_gets_the_action_it_gets_in_a_batch", "deterministic_actions_repeat"]
    assert broken_clauses(contract(Noisy, has_deterministic_mode=False)) == []


def test_a_policy_without_torch_is_checked_as_far_as_it_goes():
    class Plain(BasePolicy):
        def __init__(self):
            super().__init__(config=None)

        def get_action_and_runtime_state(self, obs):
            n = len(obs["text"])
            return np.zeros((n, 1, 2), np.float32), {"row": np.arange(n)}

    assert broken_clauses(contract(Plain)) == []
