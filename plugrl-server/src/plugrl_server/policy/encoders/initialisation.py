"""Initial weights."""

from typing import TypeVar

from torch import nn

Layer = TypeVar("Layer", nn.Linear, nn.Conv2d)

RELU_GAIN = 2**0.5
"""Gain of layers before a ReLU or tanh, as in CleanRL."""


def orthogonal(layer: Layer, gain: float = RELU_GAIN) -> Layer:
    """Give a layer orthogonal weights of this gain and zero biases (Saxe et al. 2014); returns the layer."""
    nn.init.orthogonal_(layer.weight, gain)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer
