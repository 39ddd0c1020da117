"""The plumbing of on-policy algorithms, read downwards: storing, advantages, mini-batches, scheduling, state.

An algorithm on top of it writes its losses and four methods: `make_optimizer`, `update`, and, where it has more to keep
than this class knows, `extra_state` and `load_extra_state`.
"""

import abc
from collections.abc import Iterator
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch

from plugrl_server.algorithm.buffered import BufferedAlgorithm
from plugrl_server.algorithm.feedback_rows import FeedbackRows, Node
from plugrl_server.algorithm.on_policy.on_policy_config import OnPolicyConfig
from plugrl_server.common.checkpoint_manager import Checkpoint, loading
from plugrl_server.learning import trees
from plugrl_server.learning.normalizer import RunningNormalizer
from plugrl_server.learning.optim import FlatAdam
from plugrl_server.learning.returns import discounted_sums, gae
from plugrl_server.learning.rng import derived_generator, load_rng_state, rng_state
from plugrl_server.learning.rollout_buffer import RolloutBuffer, Stored, flat
from plugrl_server.learning.trees import Tree
from plugrl_server.policy.state import PolicyRuntimeState, PolicyTrainState

T = TypeVar("T")

VALUE_ROWS = 4096
"""Observations whose values are computed at once: bounds what a batch of images takes in memory."""


class Frames(NamedTuple):
    """The N frames of an iteration as tensors on the policy's device.

    Attributes:
        features: What the networks take of the observation, a tree of [N, ...].
        sample: The train state, a tree of [N, ...].
        value: The value of the observation under the weights that acted, f4[N].
        advantage: Generalised advantage estimate, f4[N].
        returns: What the value is regressed on, f4[N].
    """

    features: Tree
    sample: Tree
    value: torch.Tensor
    advantage: torch.Tensor
    returns: torch.Tensor


def normalized(advantage: torch.Tensor) -> torch.Tensor:
    """Return a mini-batch's advantages with mean 0 and deviation 1; a single one as it is."""
    if len(advantage) == 1:
        return advantage
    deviation, mean = torch.std_mean(advantage)
    return (advantage - mean) / (deviation + 1e-8)


class Iteration(NamedTuple):
    """What every learner learns from in one iteration.

    Attributes:
        frames: The frames.
        number: How many iterations were before it.
        started: The global step it began at.
        generator: State of the generator.
        extra: From `extra_state`.
    """

    frames: Frames
    number: int
    started: int
    generator: torch.Tensor
    extra: dict[str, Any]


class OnPolicyAlgorithm(BufferedAlgorithm):
    """An algorithm that fills a buffer with frames of the current policy, learns from it, and clears it.

    Of a frame's action it keeps the sample. What else learning needs (values, probabilities) is computed before the
    first step, by the weights that acted.

    The policy has `observe`, `features`, `value`, `update_normalizer`, `parameters` and `device`.

    Args:
        config: Its sizes, rates and discounts.
        policy: The policy.

    Attributes:
        iteration: Learn steps done.
        rollout: The frames.
        return_normalizer: Spread of the discounted return, which rewards are divided by.
        generator: What learning draws from (shuffles, noise), on the CPU.
        optimizer: From `make_optimizer`; its first group is the actor's, its last one the critic's.
    """

    config: OnPolicyConfig

    def __init__(self, config: OnPolicyConfig, policy: Any) -> None:
        config.check()
        super().__init__(config=config, policy=policy)
        self.iteration = 0
        self.saved_iteration = 0
        self.rollout = RolloutBuffer(config.buffer_size)
        self.return_normalizer = RunningNormalizer(())
        self.generator = derived_generator()
        self.optimizer = self.make_optimizer()

    @abc.abstractmethod
    def make_optimizer(self) -> FlatAdam:
        """Return the optimizer, a group with `learning_rates()[i]` each."""

    @abc.abstractmethod
    def update(self, frames: Frames) -> dict[str, float]:
        """Learn from the frames of an iteration, and return the metrics."""

    def learning_rates(self) -> list[float]:
        """Return the configured rates of the actor and the critic."""
        critic = self.config.critic_learning_rate
        return [self.config.learning_rate, self.config.learning_rate if critic is None else critic]

    # Acting and storing ------------------------------------------------------------------------------------------

    def init_optimizers(self) -> None:
        """Size the buffer by `example_train_state`, which wants a whole algorithm; optimizers were built with it."""
        self.rollout.size_for(self.example_train_state(1))

    def infer(self, obs: dict[str, Any]) -> tuple[np.ndarray, PolicyRuntimeState]:
        """Sample a chunk for each environment."""
        actions, runtime_state = self.policy.get_action_and_runtime_state(obs)
        return actions, runtime_state

    def feedback_rows(self, rows: FeedbackRows) -> int:
        """Store the rows of a message, as many as fit."""
        taken = min(len(rows), self.rollout.capacity - len(self.rollout))
        if taken == len(rows):
            self._store(rows)
        elif taken:
            head = rows.select(0, taken)
            self._store(head)
            rows.nodes[:taken] = head.nodes
        return taken

    def _add(self, train_state: PolicyTrainState, **frames: Tree) -> list[Node]:
        return self.rollout.add(train_state=train_state, **frames)

    # Learning ----------------------------------------------------------------------------------------------------

    def learn_impl(self) -> tuple[int, dict[str, Any]]:
        """Learn from the buffer and clear it. The return normaliser moves before, the observation normaliser after."""
        learning_rate = self._anneal()
        stored = self.rollout.stored()
        frames, discounted = self.frames(stored)
        metrics = self.learn_together(self._iteration(frames))
        self.policy.update_normalizer(trees.map_leaves(torch.from_numpy, stored.obs))
        self.rollout.clear(carry=discounted)
        self.iteration += 1
        explained = explained_variance(frames.value, frames.returns)
        return self.global_step, {**metrics, **explained, "losses/learning_rate": learning_rate}

    def _iteration(self, frames: Frames) -> Iteration:
        started = self.global_step - len(self.rollout)
        return Iteration(frames, self.iteration, started, self.generator.get_state(), self.extra_state())

    @property
    def critic_warms_up(self) -> bool:
        """Whether only the critic learns in this iteration."""
        return self.iteration < self.config.critic_warmup_iterations

    def step_optimizer(self) -> None:
        """Take an optimizer step; while the critic warms up, of its group alone.

        The actor's Adam must not count steps without a gradient: the bias correction of its second moment would be
        gone when the first ones come, and they would move it by several times its learning rate.
        """
        last = len(self.optimizer.groups) - 1
        self.optimizer.step(self.config.max_grad_norm, [last] if self.critic_warms_up else None)

    def distributed_modules(self) -> dict[str, Any]:
        """Return the policy and the optimizer, of which every learner has a copy."""
        return {"policy": self.policy, "optimizer": self.optimizer}

    def learn_batch(self, batch: Iteration) -> dict[str, float]:
        """Learn from the frames of an iteration; a learner other than rank 0 first takes over where rank 0 stands."""
        if self.rank:
            self.iteration, self.global_step = batch.number, batch.started
            self.generator.set_state(batch.generator)
            self.load_extra_state(batch.extra)
            self._anneal()
        return self.update(batch.frames)

    def _anneal(self) -> float:
        """Set the learning rates of this iteration, and return the actor's."""
        left = 1.0
        if self.config.anneal_learning_rate and self.config.global_steps is not None:
            left = max(0.0, 1 - (self.global_step - len(self.rollout)) / self.config.global_steps)
        for group, rate in zip(self.optimizer.groups, self.learning_rates(), strict=True):
            group.learning_rate = rate * left
        return self.optimizer.groups[0].learning_rate

    @torch.no_grad()
    def frames(self, stored: Stored) -> tuple[Frames, np.ndarray | None]:
        """Return the buffer as tensors with advantages, and what each environment's discounted return has come to."""
        features = self.policy.features(self._on_device(stored.obs))
        value = self._values(features)
        values = value.cpu().numpy()
        layout = self.rollout.layout()
        rewards, discounted = self._scaled_rewards(stored, layout)
        columns = gae(
            rewards=rewards[layout],
            values=values[layout],
            next_values=self._next_values(stored, values)[layout],
            terminated=stored.terminated[layout],
            cut=stored.cut[layout],
            gamma=self.config.gamma,
            gae_lambda=self.config.gae_lambda,
        )
        advantage, returns = (self._on_device(flat(column, layout)) for column in columns)
        return Frames(features, self._on_device(stored.train_state), value, advantage, returns), discounted

    def _scaled_rewards(self, stored: Stored, layout: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """Return rewards as learning sees them, and the running discounted return after each frame, both f4[N]."""
        config = self.config
        if not config.normalize_rewards:
            return stored.reward * np.float32(config.reward_scale), None
        gamma = config.gamma if config.reward_scaling_gamma is None else config.reward_scaling_gamma
        sums = discounted_sums(stored.reward[layout], stored.cut[layout], stored.carried[layout], gamma)
        discounted = flat(sums, layout)
        self.return_normalizer.update(torch.from_numpy(discounted))
        rewards = self.return_normalizer.rescale(torch.from_numpy(stored.reward)).numpy()
        return rewards * np.float32(config.reward_scale), discounted

    def _next_values(self, stored: Stored, values: np.ndarray) -> np.ndarray:
        """Return V(next_obs) of each frame: its successor's value, or at a cut that of its own final observation."""
        next_values: np.ndarray = values[stored.successor]
        finals = np.flatnonzero(stored.cut & ~stored.terminated)
        if len(finals):
            observed = self._on_device(trees.take(self.rollout.final_obs, stored.final[finals]))
            next_values[finals] = self._values(self.policy.features(observed)).cpu().numpy()
        return next_values

    def _values(self, features: Tree) -> torch.Tensor:
        rows = trees.leading(features) or 0
        parts = [slice(start, start + VALUE_ROWS) for start in range(0, rows, VALUE_ROWS)]
        return torch.cat([self.policy.value(trees.take(features, part)) for part in parts])

    def _on_device(self, tree: Tree) -> Tree:
        return trees.map_leaves(lambda leaf: torch.from_numpy(leaf).to(self.policy.device), tree)

    def batches(self, frames: T) -> Iterator[T]:
        """Yield one epoch of shuffled mini-batches of a tree of tensors [N, ...]; the last one holds what is left."""
        rows = trees.leading(frames) or 0
        order = torch.randperm(rows, generator=self.generator).to(self.policy.device)
        for index in torch.split(order, self.config.batch_size):
            yield trees.map_leaves(lambda leaf, index=index: leaf.index_select(0, index), frames)

    # Scheduling and state ----------------------------------------------------------------------------------------

    def should_learn(self) -> bool:
        """Return whether the buffer is full."""
        return self.rollout.full

    def should_save(self) -> bool:
        """Return whether `save_interval` iterations have passed since the last checkpoint."""
        return self.iteration - self.saved_iteration >= self.config.save_interval

    def should_stop(self) -> bool:
        """Return whether `global_steps` frames are stored, and a buffer they filled has been learned from."""
        steps = self.config.global_steps
        return steps is not None and self.global_step >= steps and not self.should_learn()

    def extra_state(self) -> dict[str, Any]:
        """Return what an algorithm keeps besides what this class knows; a tree a checkpoint can hold."""
        return {}

    def load_extra_state(self, state: dict[str, Any]) -> None:
        """Restore what `extra_state` returned; weights and optimizer are loaded already."""

    def create_checkpoint(self) -> Checkpoint:
        """Return weights, optimizer, normalisers, generators, counters and the frames stored since the last step."""
        self.saved_iteration = self.iteration
        meta = {
            "iteration": self.iteration,
            "saved_iteration": self.saved_iteration,
            "return_normalizer": self.return_normalizer.state_dict(),
            "rollout": self.rollout.state_dict(),
            "rng": rng_state(self.policy, self.generator),
            "extra": self.extra_state(),
        }
        model, optimizer = self.policy.state_dict(), self.optimizer.state_dict()
        return Checkpoint(step=self.global_step, model=model, optimizer=optimizer, meta=meta)

    def load_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Restore what `create_checkpoint` returned.

        Raises:
            CheckpointError: It is that of another policy, optimizer or buffer, or lacks a part; the text says which.
        """
        meta = checkpoint.meta
        with loading(checkpoint):
            self.policy.load_state_dict(checkpoint.model)
            self.optimizer.load_state_dict(checkpoint.optimizer)
            self.rollout.load_state_dict(meta["rollout"])
            self.load_extra_state(meta["extra"])
            self.return_normalizer.load_state_dict(meta["return_normalizer"])
            load_rng_state(meta["rng"], self.policy, self.generator)
            self.iteration, self.saved_iteration = meta["iteration"], meta["saved_iteration"]
        self.global_step = checkpoint.step


def explained_variance(value: torch.Tensor, returns: torch.Tensor) -> dict[str, float]:
    """Return how much of the returns' variance the values explained; nothing where there is no variance."""
    variance = float(returns.var(correction=0))
    if variance == 0:
        return {}
    return {"losses/explained_variance": 1 - float((returns - value).var(correction=0)) / variance}
