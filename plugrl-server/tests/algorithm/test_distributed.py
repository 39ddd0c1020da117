"""DDPAlgorithm: its hooks, and that the number of learners changes nothing but the work of each (in threads here)."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from plugrl_server.algorithm.collectives import ALONE, Collectives
from plugrl_server.algorithm.distributed import DDPAlgorithm, Learn
from plugrl_server.learning.optim import FlatAdam, Group
from torch import nn

N, BATCH, EPOCHS = 23, 5, 3  # the last mini-batch has 3 rows: with 4 learners, one has none
GENERATOR = torch.Generator().manual_seed(0)
INPUTS, TARGETS = torch.randn(N, 3, generator=GENERATOR), torch.randn(N, 1, generator=GENERATOR)


class Almost(DDPAlgorithm):
    infer = feedback = learn_impl = should_learn = should_save = should_stop = None
    create_checkpoint = load_checkpoint = None

    def distributed_modules(self):
        return {}


class Regression(Almost):
    """Least squares by mini-batch steps, in a dtype, with FlatAdam over two groups or an optimizer of torch's."""

    def __init__(self, seed=0, dtype=torch.float32, flat=True):
        super().__init__(config=None, policy=None)
        torch.manual_seed(seed)
        self.model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).to(dtype)
        first, last = ([*self.model[i].parameters()] for i in (0, 2))
        if flat:
            self.optimizer = FlatAdam([Group(first, 0.02), Group(last, 0.01)])
        else:
            self.optimizer = torch.optim.Adam([{"params": first, "lr": 0.02}, {"params": last, "lr": 0.01}])

    def distributed_modules(self):
        return {"model": self.model, "optimizer": self.optimizer}

    def learn_batch(self, batch):
        inputs, targets, order = batch
        losses = [self.step(inputs[rows], targets[rows]) for rows in order.split(BATCH)]
        return {"loss": float(torch.stack(losses).mean())}

    def step(self, inputs, targets):
        (mine, wanted), weight = self.shard((inputs, targets), len(inputs))
        loss = (self.model(mine.to(self.model[0].weight.dtype)).float() - wanted).square().mean()
        self.optimizer.zero_grad()
        self.backward(loss, weight)
        self.all_reduce_gradients(self.optimizer)
        if isinstance(self.optimizer, FlatAdam):
            self.optimizer.step(max_grad_norm=0.5)
        else:
            nn.utils.clip_grad_norm_(self.model.parameters(), 0.5)
            self.optimizer.step()
        return self.add_up(weight * loss.detach())

    def weights(self):
        return nn.utils.parameters_to_vector(self.model.parameters()).detach()


class Threads(Collectives):
    """Learners that are threads of this process."""

    def __init__(self, rank, world_size, shared):
        self.rank, self.world_size = rank, world_size
        self.slots, self.barrier = shared

    def _all(self, value):
        self.slots[self.rank] = value
        self.barrier.wait(10)
        values = list(self.slots)
        self.barrier.wait(10)
        return values

    def add_up(self, tensor):
        tensor.copy_(torch.stack(self._all(tensor.clone())).sum(0))

    def broadcast(self, tree=None):
        return self._all(tree)[0]


def learners(world_size):
    shared = [None] * world_size, threading.Barrier(world_size)
    return [Threads(rank, world_size, shared) for rank in range(world_size)]


def batches():
    generator = torch.Generator().manual_seed(1)
    for _ in range(3):
        yield INPUTS, TARGETS, torch.cat([torch.randperm(N, generator=generator) for _ in range(EPOCHS)])


def follow(algorithm, collectives):
    algorithm.join(collectives)
    if collectives.rank == 0:
        metrics = [algorithm.learn_together(batch) for batch in batches()]
        collectives.broadcast(None)
        return metrics
    while (message := collectives.broadcast()) is not None:
        algorithm.learn_batch(message.batch)
    return None


def together(world_size, **options):
    """The algorithms of all ranks after three learn steps, and what rank 0 reported."""
    algorithms = [Regression(seed=rank, **options) for rank in range(world_size)]  # joining makes them equal
    with ThreadPoolExecutor(world_size) as pool:
        metrics = list(pool.map(follow, algorithms, learners(world_size)))
    return algorithms, metrics[0]


@pytest.mark.parametrize("world_size", [2, 3, 4])
@pytest.mark.parametrize("flat", [True, False])
def test_several_learners_get_the_weights_of_one(world_size, flat):
    alone = Regression(flat=flat)
    before = alone.weights()
    expected = [alone.learn_together(batch) for batch in batches()]
    assert not torch.allclose(alone.weights(), before, atol=0.05)

    algorithms, metrics = together(world_size, flat=flat)
    for algorithm in algorithms:
        torch.testing.assert_close(algorithm.weights(), alone.weights(), rtol=0, atol=1e-6)
        assert torch.equal(algorithm.weights(), algorithms[0].weights())
    assert metrics == [{"loss": pytest.approx(of_one["loss"], rel=1e-5)} for of_one in expected]


def test_narrow_weights_stay_equal_everywhere():
    """Gradients in bfloat16 are added up in float32."""
    alone = Regression(dtype=torch.bfloat16)
    for batch in batches():
        alone.learn_together(batch)
    algorithms, _ = together(2, dtype=torch.bfloat16)
    assert torch.equal(algorithms[0].weights(), algorithms[1].weights())
    torch.testing.assert_close(algorithms[0].weights(), alone.weights(), rtol=0.02, atol=0.02)


def test_joining_takes_over_the_optimizer_too():
    """As after --resume: moments and step counts are rank 0's."""
    trained = Regression()
    trained.learn_together(next(batches()))
    fresh = Regression(seed=5)
    first, second = learners(2)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda pair: pair[0].join(pair[1]), [(trained, first), (fresh, second)]))
    assert fresh.optimizer.state_dict()["groups"][0]["step"] == trained.optimizer.state_dict()["groups"][0]["step"] > 0
    assert torch.equal(fresh.weights(), trained.weights())
    assert (fresh.rank, fresh.world_size) == (1, 2)


def test_alone_nothing_is_copied_or_sent():
    algorithm = Regression()
    batch = torch.arange(4)
    assert algorithm.collectives is ALONE
    assert algorithm.shard(batch, 4) == (batch, 1.0)
    assert algorithm.add_up(batch) is batch
    assert (algorithm.rank, algorithm.world_size) == (0, 1)


def test_a_failed_step_is_remembered():
    """The other learners are then somewhere in the middle of it, and must not be sent anything else."""
    algorithm = Regression()
    with pytest.raises(ValueError):
        algorithm.learn_together((1, 2))
    assert algorithm.in_step
    algorithm.learn_together(next(batches()))
    assert not algorithm.in_step


def test_a_learn_message_is_a_tree_of_its_batch():
    assert Learn({"a": 1}).batch == {"a": 1}


def test_missing_hooks_are_named_with_the_way_out():
    with pytest.raises(TypeError) as error:
        Almost(config=None, policy=None)
    text = str(error.value)
    assert "Almost derives from DDPAlgorithm but lacks its distributed hooks" in text
    assert "learn_batch(batch)" in text
    assert "distributed_modules" not in text
    assert "derive from BaseAlgorithm" in text
