"""Tanh MLPs: initialisation, and NumPy's forward pass against torch's."""

import numpy as np
import pytest
import torch
from plugrl_server.policy.actor_critic.mlp import MAX_WIDTH, MOST_MULTIPLICATIONS, NumpyMLP, tanh_mlp


def inputs(n, width):
    return np.random.default_rng(0).standard_normal((n, width)).astype(np.float32)


def test_weights_are_orthogonal_with_the_gains_of_the_paper():
    network = tanh_mlp(64, (64, 64), 3, gain=0.01)
    linear = [layer for layer in network if isinstance(layer, torch.nn.Linear)]
    for layer, gain in zip(linear, (2**0.5, 2**0.5, 0.01), strict=True):
        weight = layer.weight.detach()
        torch.testing.assert_close(weight @ weight.T, gain**2 * torch.eye(len(weight)), atol=1e-4, rtol=0)
        assert (layer.bias == 0).all()
    assert [type(layer).__name__ for layer in network] == ["Linear", "Tanh", "Linear", "Tanh", "Linear"]


@pytest.mark.parametrize("n", [0, 1, 64, 150])
@pytest.mark.parametrize("hidden", [(), (8,), (64, 64)])
def test_numpy_gives_torch_s_outputs(n, hidden):
    network = tanh_mlp(5, hidden, 2, gain=1.0)
    quick = NumpyMLP(network)
    assert quick.usable
    x = inputs(n, 5)
    with torch.no_grad():
        np.testing.assert_allclose(quick(x), network(torch.from_numpy(x)).numpy(), atol=1e-5)


def test_it_follows_changes_in_place_and_replaced_memory():
    network = tanh_mlp(2, (4,), 1, gain=1.0)
    quick = NumpyMLP(network)
    x = inputs(3, 2)

    def agrees():
        with torch.no_grad():
            return quick.usable and np.allclose(quick(x), network(torch.from_numpy(x)).numpy(), atol=1e-6)

    assert agrees()
    with torch.no_grad():
        network[0].weight.mul_(2)
    assert agrees()
    network[0].weight.data = torch.ones(4, 2)
    assert agrees()


def test_it_leaves_wide_and_narrow_typed_networks_to_torch():
    assert not NumpyMLP(tanh_mlp(2, (MAX_WIDTH + 1,), 1, gain=1.0)).usable
    assert not NumpyMLP(tanh_mlp(2, (4,), 1, gain=1.0).to(torch.bfloat16)).usable


def test_inputs_are_left_alone():
    x = inputs(3, 2)
    before = x.copy()
    quick = NumpyMLP(tanh_mlp(2, (), 1, gain=1.0))
    assert quick.usable
    quick(x)
    np.testing.assert_array_equal(x, before)


def test_no_product_is_large_enough_for_a_second_thread(monkeypatch):
    quick = NumpyMLP(tanh_mlp(17, (256, 256), 6, gain=1.0))
    assert quick.usable
    seen = []
    monkeypatch.setattr(quick, "_outputs", lambda rows: seen.append(len(rows)) or np.zeros((len(rows), 6)))
    assert quick(inputs(11, 17)).shape == (11, 6)
    assert sum(seen) == 11
    assert max(seen) * 256 * 256 <= MOST_MULTIPLICATIONS
