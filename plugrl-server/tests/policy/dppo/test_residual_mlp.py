"""Residual MLPs and the step embedding, against formulae."""

import numpy as np
import pytest
import torch
from plugrl_server.policy.dppo.residual_mlp import StepEmbedding, residual_mlp
from torch import nn


def numbers(layer):
    return layer.weight.detach().numpy(), layer.bias.detach().numpy()


def test_two_layers_as_wide_as_their_input_are_a_residual_block():
    network = residual_mlp(3, (8, 8, 8), 2, nn.ReLU)
    x = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)
    linears = [numbers(module) for module in network.modules() if isinstance(module, nn.Linear)]
    (w0, b0), (w1, b1), (w2, b2), (w3, b3) = linears
    hidden = x @ w0.T + b0
    inner = np.maximum(hidden, 0) @ w1.T + b1
    hidden = hidden + np.maximum(inner, 0) @ w2.T + b2
    np.testing.assert_allclose(network(torch.from_numpy(x)).detach(), hidden @ w3.T + b3, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("sizes", "shapes"),
    [
        ((8,), [(8, 3), (2, 8)]),
        ((8, 8), [(8, 3), (8, 8), (2, 8)]),
        ((8, 5, 8), [(8, 3), (5, 8), (8, 5), (2, 8)]),
        ((8, 5, 6), [(8, 3), (5, 8), (6, 5), (2, 6)]),
    ],
)
def test_any_widths_make_a_network(sizes, shapes):
    network = residual_mlp(3, sizes, 2, nn.Mish)
    linears = [tuple(module.weight.shape) for module in network.modules() if isinstance(module, nn.Linear)]
    assert linears == shapes
    assert network(torch.zeros(4, 3)).shape == (4, 2)


def test_steps_are_embedded_by_what_is_left_of_them():
    embedding = StepEmbedding(20, 8)
    rates = 10_000.0 ** -(np.arange(4) / 3)
    for k in (0, 7, 19):
        left = 19 - k
        expected = np.concatenate([np.sin(left * rates), np.cos(left * rates)])
        np.testing.assert_allclose(embedding.table[k], expected, atol=1e-6)
    k = torch.tensor([3, 3, 19])
    torch.testing.assert_close(embedding(k), embedding.layers(embedding.table[k]))
    assert "table" not in embedding.state_dict()
