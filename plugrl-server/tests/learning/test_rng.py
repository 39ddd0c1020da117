"""Generators: everything follows from the seed, and states can be kept."""

import random

import numpy as np
import pytest
import torch
from plugrl_server.common.tree_codec import decode, encode
from plugrl_server.learning import rng
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
    of_global = (random.gauss(), random.random(), np.random.standard_normal(), np.random.random())  # noqa: NPY002
    return (policy.rng.random(), torch.rand(()).item(), torch.rand((), generator=generator).item(), *of_global)


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
    """Through a checkpoint, too; after an odd number of normal numbers, of which generators keep the next one."""
    policy, generator = Policy(), derived_generator()
    draws(policy, generator)
    state = rng_state(policy, generator)
    first = draws(policy, generator)
    for kept in (state, decode(*encode(state, "rng"), "rng")):
        draws(policy, generator)
        load_rng_state(kept, policy, generator)
        assert draws(policy, generator) == first


def test_a_state_of_before_python_s_and_numpy_s_were_kept_loads():
    policy, generator = Policy(), derived_generator()
    state = rng_state(policy, generator)
    of_torch = draws(policy, generator)[:3]
    old = {name: state[name] for name in ("torch", "policy", "algorithm")}
    expected = random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002
    load_rng_state(old, policy, generator)
    assert (random.getstate(), np.random.get_state()[1].tolist()) == expected  # noqa: NPY002
    assert draws(policy, generator)[:3] == of_torch


class Cuda:
    """`torch.cuda` with generators of bytes."""

    def __init__(self, devices):
        self.states = [torch.full((16,), i, dtype=torch.uint8) for i in range(devices)]

    def is_initialized(self):
        return bool(self.states)

    def is_available(self):
        return bool(self.states)

    def device_count(self):
        return len(self.states)

    def get_rng_state_all(self):
        return [state.clone() for state in self.states]

    def set_rng_state(self, state, device):
        self.states[device] = state


def test_the_states_of_cuda_are_kept_where_it_is_used(monkeypatch):
    monkeypatch.setattr(rng, "cuda", Cuda(2))
    state = rng_state(Stateless())
    with preserved(Stateless()):
        rng.cuda.states = [torch.full((16,), 9, dtype=torch.uint8)] * 2
    assert [tensor[0].item() for tensor in rng.cuda.states] == [0, 1]
    for devices in (1, 3, 0):  # elsewhere: what both machines have
        monkeypatch.setattr(rng, "cuda", Cuda(devices))
        rng.cuda.states = [torch.full((16,), 9, dtype=torch.uint8)] * devices
        load_rng_state(state, Stateless())
        assert [tensor[0].item() for tensor in rng.cuda.states] == [0, 1, 9][:devices]


def test_the_states_of_cuda_are_not_asked_for_where_it_is_not_used(monkeypatch):
    """Asking would set CUDA up, on every device."""
    monkeypatch.setattr(rng, "cuda", Cuda(0))
    monkeypatch.setattr(rng.cuda, "get_rng_state_all", lambda: pytest.fail("CUDA was set up"))
    assert rng_state(Stateless())["cuda"] == []


def test_preserved_leaves_no_trace():
    policy, generator, generator_of_its_own = Policy(), derived_generator(), derived_generator()
    state = rng_state(policy, generator)
    expected = draws(policy, generator)
    load_rng_state(state, policy, generator)
    with preserved(policy):
        draws(policy, generator_of_its_own)
    assert draws(policy, generator) == expected


def test_a_policy_without_generators_is_fine():
    with preserved(Stateless()):
        torch.rand(1)
    load_rng_state(rng_state(Stateless()), Stateless())
