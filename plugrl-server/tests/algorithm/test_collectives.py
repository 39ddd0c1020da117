"""Rows are shared out without gaps; what rank 0 says arrives whole in another process."""

import subprocess
import sys

import numpy as np
import pytest
import torch
import torch.distributed as dist
from plugrl_server.algorithm.collectives import ALONE, Collectives, LearnersLost, TorchCollectives

SECOND = """
import sys, torch, torch.distributed as dist
from plugrl_server.algorithm.collectives import TorchCollectives
dist.init_process_group("gloo", store=dist.FileStore(sys.argv[1], 2), rank=1, world_size=2)
collectives = TorchCollectives(dist.new_group(backend="gloo"))
tree = collectives.broadcast()
assert tree["none"] is None and tree["text"] == "a" and tree["array"].tolist() == [1, 2], tree
assert tree["frames"].dtype == "uint8" and tree["frames"].shape == (256, 300) and (tree["frames"] == 5).all()
tree["frames"][:] = 0
total = tree["tensors"][0].float()
collectives.add_up(total)
assert total.tolist() == [[0.0, 3.0], [6.0, 9.0]], total
tree["tensors"][1].fill_(7)
assert [str(t.dtype) for t in tree["tensors"]] == ["torch.uint8", "torch.bool", "torch.bfloat16", "torch.int64"], tree
assert tree["tensors"][2].tolist() == [1.5] and tree["tensors"][3].shape == (0, 2)
dist.destroy_process_group()
"""


@pytest.fixture
def second(tmp_path):
    """A second learner in a process of its own, with which this process has a process group."""
    process = subprocess.Popen([sys.executable, "-c", SECOND, tmp_path / "store"])
    dist.init_process_group("gloo", store=dist.FileStore(str(tmp_path / "store"), 2), rank=0, world_size=2)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        dist.destroy_process_group()


@pytest.mark.parametrize(("rows", "world_size"), [(64, 2), (7, 3), (1, 2), (2, 5)])
def test_shards_cover_every_row_once_and_evenly(rows, world_size):
    parts = []
    for rank in range(world_size):
        learner = Collectives()
        learner.rank, learner.world_size = rank, world_size
        parts.append(np.arange(rows)[learner.shard(rows)])
    assert np.concatenate(parts).tolist() == list(range(rows))
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= 1


def test_alone_every_operation_is_the_identity():
    tensor, tree = torch.ones(2), {"a": 1}
    ALONE.add_up(tensor)
    assert tensor.tolist() == [1.0, 1.0]
    assert ALONE.broadcast(tree) is tree
    assert ALONE.shard(5) == slice(0, 5)


def test_trees_and_sums_cross_processes_and_a_lost_learner_is_told(second):
    collectives = TorchCollectives(dist.new_group(backend="gloo"))
    assert (collectives.rank, collectives.world_size) == (0, 2)
    pixels = torch.tensor([[0, 2], [1, 3]], dtype=torch.uint8).T  # not contiguous
    tensors = (pixels, torch.ones(1, dtype=torch.bool), torch.tensor([1.5]).bfloat16(), torch.zeros(0, 2).long())
    large = np.full((300, 256), 5, np.uint8).T
    large.setflags(write=False)
    tree = {"none": None, "text": "a", "array": np.array([1, 2]), "frames": large, "tensors": tensors}
    assert collectives.broadcast(tree) is tree
    total = torch.tensor([[0.0, 2.0], [4.0, 6.0]])
    collectives.add_up(total)
    assert total.tolist() == [[0.0, 3.0], [6.0, 9.0]]
    assert second.wait(20) == 0
    with pytest.raises(LearnersLost, match="another learner is gone"):
        collectives.add_up(torch.ones(1))
