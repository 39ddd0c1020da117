"""Generators: everything follows from the seed, and states can be kept."""

import random

import numpy as np
import torch
from plugrl_server.learning.rng import derived_generator, load_rng_state, preserved, rng_state, seed_everything


class Policy:
    def __init__(self):
        self.rng = np.random.default_rng(3)

    def rng_state(self):
        return dict(self.rng.bit_generator.state)

    def load_rng_state(self, state):
        self.rng.bit_generator.state = state


class Stateless:
    def rng_state(self):
        return None

    def load_rng_state(self, state):
        assert state is None


def draws(policy, generator):
    return (policy.rng.random(), torch.rand(()).item(), torch.rand((), generator=generator).item())


def test_a_seed_fixes_every_generator():
    seen = []
    for _ in range(2):
        seed_everything(2**40 + 7)
        numbers = (random.random(), np.random.random(), torch.rand(()).item())  # noqa: NPY002
        seen.append((*numbers, torch.rand((), generator=derived_generator()).item()))
    assert seen[0] == seen[1]


def test_derived_generators_differ():
    first, second = derived_generator(), derived_generator()
    assert torch.rand((), generator=first) != torch.rand((), generator=second)


def test_a_kept_state_gives_the_same_numbers_again():
    policy, generator = Policy(), derived_generator()
    state = rng_state(policy, generator)
    first = draws(policy, generator)
    load_rng_state(state, policy, generator)
    assert draws(policy, generator) == first


def test_preserved_leaves_no_trace():
    policy, generator = Policy(), derived_generator()
    state = rng_state(policy, generator)
    expected = draws(policy, generator)
    load_rng_state(state, policy, generator)
    with preserved(policy):
        policy.rng.random(5)
        torch.rand(5)
    assert draws(policy, generator) == expected


def test_a_policy_without_generators_is_fine():
    with preserved(Stateless()):
        torch.rand(1)
    load_rng_state(rng_state(Stateless()), Stateless())
