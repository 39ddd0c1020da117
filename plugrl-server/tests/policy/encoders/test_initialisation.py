"""Orthogonal initial weights."""

import pytest
import torch
from plugrl_server.policy.encoders.initialisation import orthogonal
from torch import nn


@pytest.mark.parametrize("layer", [nn.Linear(20, 8), nn.Conv2d(4, 8, 3)])
def test_rows_are_orthogonal_with_the_gain_and_biases_are_zero(layer):
    torch.manual_seed(0)
    assert orthogonal(layer, 0.5) is layer
    weight = layer.weight.detach().flatten(1)
    torch.testing.assert_close(weight @ weight.T, 0.25 * torch.eye(8), atol=1e-5, rtol=0)
    assert (layer.bias == 0).all()


def test_the_default_gain_is_that_of_a_relu():
    weight = orthogonal(nn.Linear(4, 4)).weight.detach()
    assert weight.norm().item() == pytest.approx((2 * 4) ** 0.5, rel=1e-5)


def test_layers_without_a_bias_are_fine():
    assert orthogonal(nn.Linear(4, 4, bias=False)).bias is None
