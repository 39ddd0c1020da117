"""The CNNs' numbers are those of the papers."""

import pytest
from plugrl_server.policy.encoders.architectures import ARCHITECTURES


def test_nature_is_the_network_of_dqn():
    assert ARCHITECTURES["nature"] == (((32, 8, 4), (64, 4, 2), (64, 3, 1)), 512)


def test_impala_small_is_the_small_network_of_impala():
    assert ARCHITECTURES["impala-small"] == (((16, 8, 4), (32, 4, 2)), 256)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_smallest_side_leaves_one_pixel(name):
    def left(side):
        for _, kernel, stride in ARCHITECTURES[name].convolutions:
            side = (side - kernel) // stride + 1 if side >= kernel else 0
        return side

    assert left(ARCHITECTURES[name].smallest_side) == 1
    assert left(ARCHITECTURES[name].smallest_side - 1) < 1
