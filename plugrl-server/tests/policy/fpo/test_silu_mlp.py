"""SiLU MLPs and the time embedding against their formulae."""

import math

import pytest
import torch
from plugrl_server.policy.fpo.silu_mlp import silu_mlp, time_embedding


def test_layers():
    network = silu_mlp(3, (8, 5), 2)
    assert [type(layer).__name__ for layer in network] == ["Linear", "SiLU", "Linear", "SiLU", "Linear"]
    assert [tuple(layer.weight.shape) for layer in network[::2]] == [(8, 3), (5, 8), (2, 5)]
    assert all((layer.bias == 0).all() for layer in network[::2])


def test_weights_are_orthogonal():
    weight = silu_mlp(4, (4,), 1)[0].weight
    torch.testing.assert_close(weight @ weight.T, torch.eye(4), atol=1e-5, rtol=0)


def test_times_are_embedded_in_cosines_and_sines_of_doubling_frequencies():
    embedded = time_embedding(torch.tensor([0.0, 0.3]), 6)
    assert embedded[0].tolist() == [1, 1, 1, 0, 0, 0]
    expected = [math.cos(0.3 * f) for f in (1, 2, 4)] + [math.sin(0.3 * f) for f in (1, 2, 4)]
    assert embedded[1].tolist() == pytest.approx(expected, abs=1e-6)
