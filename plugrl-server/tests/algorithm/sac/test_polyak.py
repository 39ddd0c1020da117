"""Targets follow at the given pace, through float32 where they are narrower."""

import pytest
import torch
from plugrl_server.algorithm.sac.polyak import PolyakTarget
from torch import nn


def parameters(*shapes, dtype=torch.float32):
    return [nn.Parameter(torch.zeros(shape, dtype=dtype), requires_grad=False) for shape in shapes]


def test_targets_begin_equal_to_their_source_and_follow_it():
    targets = parameters((2, 3), (4,))
    source = torch.arange(10.0)
    target = PolyakTarget(targets, source)
    torch.testing.assert_close(torch.cat([parameter.reshape(-1) for parameter in targets]), source)
    source += 100
    target.follow(0.1)
    torch.testing.assert_close(targets[0], torch.arange(6.0).reshape(2, 3) + 10)
    target.follow(0.1)
    torch.testing.assert_close(targets[1], torch.arange(6.0, 10.0) + 19)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_rule_7_narrow_targets_follow_through_float32(dtype):
    """A step of 0.005 of 1 is below what either resolves at 100."""
    targets = parameters((1,), dtype=dtype)
    source = torch.tensor([100.0])
    target = PolyakTarget(targets, source)
    source += 1
    for _ in range(1000):
        target.follow(0.005)
    assert target.master.item() == pytest.approx(101, abs=0.01)
    assert targets[0].item() == 101

    other = PolyakTarget(parameters((1,), dtype=dtype), torch.zeros(1))
    other.load_state_dict(target.state_dict())
    assert other.master.item() == target.master.item()


def test_float32_targets_need_no_copy_in_a_checkpoint():
    targets = parameters((2,))
    target = PolyakTarget(targets, torch.ones(2))
    assert target.state_dict() == {"master": None}
    with torch.no_grad():
        targets[0].fill_(7)
    target.load_state_dict({"master": None})
    assert target.master.tolist() == [7, 7]


def test_sizes_that_differ_are_refused():
    with pytest.raises(ValueError, match="3 numbers cannot follow 4"):
        PolyakTarget(parameters((3,)), torch.zeros(4))
