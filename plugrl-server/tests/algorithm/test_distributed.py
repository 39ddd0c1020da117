"""DDPAlgorithm names its hooks and says what to do without them."""

import pytest
from plugrl_server.algorithm.distributed import DDPAlgorithm


class Almost(DDPAlgorithm):
    infer = feedback = learn_impl = should_learn = should_save = should_stop = None
    create_checkpoint = load_checkpoint = None

    def shard_batch(self, rank, world_size):
        return None


class Whole(Almost):
    def distributed_modules(self):
        return {}

    def learn_shard(self, shard):
        return {}


def test_missing_hooks_are_named_with_the_way_out():
    with pytest.raises(TypeError) as error:
        Almost(config=None, policy=None)
    text = str(error.value)
    assert "Almost derives from DDPAlgorithm but lacks its distributed hooks" in text
    assert "distributed_modules()" in text
    assert "learn_shard(shard)" in text
    assert "shard_batch" not in text
    assert "derive from BaseAlgorithm" in text


def test_with_all_hooks_it_is_built():
    assert Whole(config=1, policy=2).config == 1
