"""The twin critics are two ordinary networks."""

import numpy as np
import torch
from plugrl_server.policy.sac.networks import TwinMLP, relu_mlp
from torch import nn


def test_the_twins_are_two_independent_mlps():
    torch.manual_seed(0)
    twins = TwinMLP(3, (5, 4))
    inputs = torch.randn(7, 3)
    outputs = twins(inputs)
    assert outputs.shape == (2, 7)
    for i in range(2):
        layers = []
        for weight, bias in zip(twins.weights, twins.biases, strict=True):
            layer = nn.Linear(weight.shape[1], weight.shape[2])
            with torch.no_grad():
                layer.weight.copy_(weight[i].T)
                layer.bias.copy_(bias[i, 0])
            layers += [layer, nn.ReLU()]
        torch.testing.assert_close(outputs[i], nn.Sequential(*layers[:-1])(inputs)[:, 0])
    assert not torch.equal(outputs[0], outputs[1])
    outputs[0].sum().backward()
    assert all(parameter.grad[0].any() and not parameter.grad[1].any() for parameter in twins.parameters())


def test_the_twins_begin_as_torch_s_linear_layers_do():
    torch.manual_seed(0)
    weight = TwinMLP(400, (300, 1)).weights[0]
    reference = nn.Linear(400, 300).weight
    assert weight.abs().max().item() <= 400**-0.5
    np.testing.assert_allclose(weight.std().item(), reference.std().item(), rtol=0.01)


def test_an_mlp_has_the_widths_it_is_given():
    network = relu_mlp(3, (8, 6), 4)
    assert [tuple(layer.weight.shape) for layer in network if isinstance(layer, nn.Linear)] == [(8, 3), (6, 8), (4, 6)]
    assert network(torch.zeros(2, 3)).shape == (2, 4)
