"""Euler steps in NumPy are torch's."""

import numpy as np
import pytest
import torch
from plugrl_server.policy.fpo.numpy_flow import NumpyFlow
from plugrl_server.policy.fpo.silu_mlp import silu_mlp, time_embedding


def network(*hidden):
    torch.manual_seed(0)
    return silu_mlp(3 + 4 + 6, hidden, 4)


def by_torch(layers, condition, x, steps):
    states = []
    with torch.no_grad():
        for k in steps:
            t = torch.full((len(x),), 1 - k / 5)
            inputs = torch.cat([condition, x, time_embedding(t, 6)], 1)
            x = x - 0.25 * layers(inputs) / 5
            states.append(x)
    return states


def _run(flow, condition, x, steps):
    assert flow.usable(len(x))
    return flow(condition, x, steps)


@pytest.mark.parametrize("hidden", [(), (8,), (16, 16, 16)])
@pytest.mark.parametrize("steps", [range(5), range(2, 4)])
def test_states_are_torch_s(hidden, steps):
    layers = network(*hidden)
    condition, x = torch.randn(7, 3), 100 * torch.randn(7, 4)  # far beyond where an exponential overflows
    found = [state.copy() for state in _run(NumpyFlow(layers, 4, 5, 6, 0.25), condition.numpy(), x.numpy(), steps)]
    expected = by_torch(layers, condition, x, steps)
    assert len(found) == len(steps)
    for mine, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-4)


def test_what_is_added_to_a_state_stays_added():
    layers = network(8)
    flow = NumpyFlow(layers, 4, 5, 6, 0.25)
    assert flow.usable(2)
    condition, x = torch.randn(2, 3), torch.randn(2, 4)
    states = flow(condition.numpy(), x.numpy(), range(2))
    first = next(iter(states))
    first += 1
    second = next(iter(states))
    (expected,) = by_torch(layers, condition, torch.from_numpy(first), [1])
    np.testing.assert_allclose(second, expected, atol=1e-5)


def test_it_follows_training_and_replaced_weights():
    layers = network(8)
    flow = NumpyFlow(layers, 4, 5, 6, 0.25)
    condition, x = torch.randn(2, 3), torch.randn(2, 4)
    for change in (lambda p: p.mul_(2), lambda p: p.set_(torch.randn_like(p))):
        with torch.no_grad():
            for parameter in layers.parameters():
                change(parameter)
        assert flow.usable(2)
        (state,) = flow(condition.numpy(), x.numpy(), [0])
        np.testing.assert_allclose(state, by_torch(layers, condition, x, [0])[0], atol=1e-5)


def test_narrow_weights_and_large_products_are_left_to_torch():
    assert NumpyFlow(network(32, 32), 4, 5, 6, 0.25).usable(256)
    assert not NumpyFlow(network(32, 32), 4, 5, 6, 0.25).usable(257)
    assert not NumpyFlow(network(512, 512), 4, 5, 6, 0.25).usable(8)
    assert not NumpyFlow(network(8).to(torch.bfloat16), 4, 5, 6, 0.25).usable(1)
