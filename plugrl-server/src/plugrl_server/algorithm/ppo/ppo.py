"""Proximal policy optimisation (Schulman et al. 2017), read downwards: losses, storing, learning, state.

Every iteration fills a buffer with frames of the current policy, then takes `update_epochs` passes of mini-batch steps
over it. The README beside this file says what differs from CleanRL's implementation, and why.
"""

from typing import Any, NamedTuple

import numpy as np
import torch

from plugrl_server.algorithm.base_algorithm import BaseAlgorithm, FeedbackRows, Node
from plugrl_server.algorithm.ppo.ppo_config import PPOConfig
from plugrl_server.algorithm.registration import register_algo
from plugrl_server.common.checkpoint_manager import Checkpoint, CheckpointError
from plugrl_server.common.config_error import ConfigError
from plugrl_server.learning import trees
from plugrl_server.learning.normalizer import RunningNormalizer
from plugrl_server.learning.optim import FlatAdam, Group
from plugrl_server.learning.returns import discounted_sums, gae
from plugrl_server.learning.rng import derived_generator, load_rng_state, rng_state
from plugrl_server.learning.rollout_buffer import RolloutBuffer, Stored, flat
from plugrl_server.learning.trees import Tree
from plugrl_server.policy.actor_critic.actor_critic import ActorCritic
from plugrl_server.policy.state import PolicyRuntimeState, PolicyTrainState

# Losses ----------------------------------------------------------------------------------------------------------


def normalized(advantage: torch.Tensor) -> torch.Tensor:
    """Return a mini-batch's advantages with mean 0 and deviation 1; a single one as it is."""
    if len(advantage) == 1:
        return advantage
    deviation, mean = torch.std_mean(advantage)
    return (advantage - mean) / (deviation + 1e-8)


def policy_loss(log_ratio: torch.Tensor, advantage: torch.Tensor, clip_coef: float) -> torch.Tensor:
    """Return the clipped surrogate objective as a loss (eq. 7): mean max(-A r, -A clip(r, 1 - c, 1 + c))."""
    ratio = log_ratio.exp()
    return -torch.minimum(advantage * ratio, advantage * ratio.clamp(1 - clip_coef, 1 + clip_coef)).mean()


def value_loss(
    value: torch.Tensor, old_value: torch.Tensor, returns: torch.Tensor, clip_coef: float | None
) -> torch.Tensor:
    """Return 0.5 mean (V - R)^2; with a clip_coef, of the worse of V and V clipped to the old value +- clip_coef."""
    error = (value - returns).square()
    if clip_coef is not None:
        clipped = old_value + (value - old_value).clamp(-clip_coef, clip_coef)
        error = torch.maximum(error, (clipped - returns).square())
    return 0.5 * error.mean()


class Frames(NamedTuple):
    """The N frames of an iteration as tensors on the policy's device.

    Attributes:
        features: What the networks take of the observation, a tensor or a tree of them, [N, ...].
        sample: The policy's samples, [N, ...].
        log_prob: Their log-probability under the policy that acted, f4[N].
        value: The value of the observation then, f4[N].
        advantage: Generalised advantage estimate, f4[N].
        returns: What the value is regressed on, f4[N].
    """

    features: Tree
    sample: torch.Tensor
    log_prob: torch.Tensor
    value: torch.Tensor
    advantage: torch.Tensor
    returns: torch.Tensor


@register_algo("ppo")
class PPO(BaseAlgorithm):
    """PPO on an actor-critic policy."""

    config: PPOConfig
    policy: ActorCritic

    def __init__(self, config: PPOConfig, policy: Any) -> None:
        if not isinstance(policy, ActorCritic):
            raise ConfigError(f"ppo needs an actor-critic policy such as gaussian-policy, got {type(policy).__name__}.")
        config.check()
        super().__init__(config=config, policy=policy)
        self.iteration = 0
        self.saved_iteration = 0
        self.rollout = RolloutBuffer(config.buffer_size)
        self.return_normalizer = RunningNormalizer(())
        self.generator = derived_generator()
        self.optimizer = self._make_optimizer()

    def _make_optimizer(self) -> FlatAdam:
        critic = list(self.policy.critic.parameters())
        of_critic = set(map(id, critic))
        actor = [parameter for parameter in self.policy.parameters() if id(parameter) not in of_critic]
        groups = [actor + critic] if self.config.critic_learning_rate is None else [actor, critic]
        rates = self._learning_rates()
        return FlatAdam(
            [Group(group, rate, eps=self.config.adam_eps) for group, rate in zip(groups, rates, strict=True)]
        )

    def _learning_rates(self) -> list[float]:
        """Return the configured rate of each parameter group."""
        if self.config.critic_learning_rate is None:
            return [self.config.learning_rate]
        return [self.config.learning_rate, self.config.critic_learning_rate]

    # Storing -----------------------------------------------------------------------------------------------------

    def infer(self, obs: dict[str, Any]) -> tuple[np.ndarray, PolicyRuntimeState]:
        """Sample a chunk for each environment."""
        return self.policy.get_action_and_runtime_state(obs)

    def derive_train_state(self, runtime_state: PolicyRuntimeState) -> PolicyTrainState:
        """Keep the sample. Its log-probability is taken in one batch before the first step, by the same weights."""
        return runtime_state["sample"]

    def feedback(self, **frame: Any) -> tuple[Node, int, dict[str, Any]]:
        """Store one frame (arguments: `BaseAlgorithm.feedback`)."""
        rows = FeedbackRows.one(**frame)
        self._store(rows)
        return rows.nodes[0], self.global_step, {}

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

    def _store(self, rows: FeedbackRows) -> None:
        rows.nodes[:] = self.rollout.add(
            obs=self.policy.observe(rows.obs),
            train_state=rows.train_state,
            next_obs=self.policy.observe(rows.next_obs),
            reward=rows.reward,
            terminated=rows.next_terminated,
            truncated=rows.next_truncated,
            nodes=rows.nodes,
        )
        self.global_step += len(rows)
        for i in np.flatnonzero(rows.next_terminated | rows.next_truncated).tolist():
            self.record_finished_episode(rows.info[i], True, True)

    # Learning ----------------------------------------------------------------------------------------------------

    def learn_impl(self) -> tuple[int, dict[str, Any]]:
        """Learn from the buffer and clear it. The return normaliser moves before, the observation normaliser after."""
        learning_rate = self._anneal()
        stored = self.rollout.stored()
        frames, discounted = self._frames(stored)
        metrics = self._update(frames)
        self.policy.update_normalizer(stored.obs)
        self.rollout.clear(carry=discounted)
        self.iteration += 1
        return self.global_step, {
            **metrics,
            **_explained_variance(frames.value, frames.returns),
            "losses/learning_rate": learning_rate,
        }

    def _anneal(self) -> float:
        """Set the learning rates of this iteration, and return the actor's."""
        left = 1.0
        if self.config.anneal_learning_rate and self.config.global_steps is not None:
            left = max(0.0, 1 - (self.global_step - len(self.rollout)) / self.config.global_steps)
        for group, rate in zip(self.optimizer.groups, self._learning_rates(), strict=True):
            group.learning_rate = rate * left
        return self.config.learning_rate * left

    @torch.no_grad()
    def _frames(self, stored: Stored) -> tuple[Frames, np.ndarray | None]:
        """Return the buffer as tensors with advantages, and what each environment's discounted return has come to."""
        device = self.policy.device
        features = self.policy.features(stored.obs)
        sample = torch.from_numpy(stored.train_state).to(device)
        log_prob, _, value = self.policy.evaluate(features, sample)
        values = value.cpu().numpy()
        layout = self.rollout.layout()
        rewards, discounted = self._scaled_rewards(stored, layout)
        advantage, returns = gae(
            rewards=rewards[layout],
            values=values[layout],
            next_values=self._next_values(stored, values)[layout],
            terminated=stored.terminated[layout],
            cut=stored.cut[layout],
            gamma=self.config.gamma,
            gae_lambda=self.config.gae_lambda,
        )
        columns = (torch.from_numpy(flat(array, layout)).to(device) for array in (advantage, returns))
        return Frames(features, sample, log_prob, value, *columns), discounted

    def _scaled_rewards(self, stored: Stored, layout: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """Return rewards over the deviation of the discounted return, and that return after each frame, both f4[N]."""
        if not self.config.normalize_rewards:
            return stored.reward, None
        gamma = self.config.gamma if self.config.reward_scaling_gamma is None else self.config.reward_scaling_gamma
        sums = discounted_sums(stored.reward[layout], stored.cut[layout], stored.carried[layout], gamma)
        discounted = flat(sums, layout)
        self.return_normalizer.update(torch.from_numpy(discounted))
        return self.return_normalizer.rescale(torch.from_numpy(stored.reward)).numpy(), discounted

    def _next_values(self, stored: Stored, values: np.ndarray) -> np.ndarray:
        """Return V(next_obs) of each frame: its successor's value, or at a cut that of its own final observation."""
        next_values: np.ndarray = values[stored.successor]
        finals = np.flatnonzero(stored.cut & ~stored.terminated)
        if len(finals):
            observed = trees.take(self.rollout.final_obs, stored.final[finals])
            next_values[finals] = self.policy.value(self.policy.features(observed)).cpu().numpy()
        return next_values

    def _update(self, frames: Frames) -> dict[str, float]:
        """Take the passes over the frames, and return the metrics."""
        steps: list[tuple[torch.Tensor, ...]] = []
        clipped: list[torch.Tensor] = []
        for _ in range(self.config.update_epochs):
            order = torch.randperm(len(frames.value), generator=self.generator).to(self.policy.device)
            shuffled = trees.take(frames, order)
            starts = range(0, len(order), self.config.batch_size)
            epoch = [self._step(trees.take(shuffled, slice(at, at + self.config.batch_size))) for at in starts]
            log_ratio = torch.cat([step[0] for step in epoch])
            ratio = log_ratio.exp()
            approx_kl = float((ratio - 1 - log_ratio).mean())
            clipped.append(((ratio - 1).abs() > self.config.clip_coef).float().mean())
            steps += epoch
            if self.config.target_kl is not None and approx_kl > self.config.target_kl:
                break
        means = {
            f"losses/{name}": float(torch.stack([step[i] for step in steps]).mean())
            for i, name in enumerate(("policy_loss", "value_loss", "entropy"), start=1)
        }
        return {**means, "losses/approx_kl": approx_kl, "losses/clip_fraction": float(torch.stack(clipped).mean())}

    def _step(self, batch: Frames) -> tuple[torch.Tensor, ...]:
        """Take one optimizer step; returns log-ratios, policy loss, value loss and entropy, still on the device."""
        config = self.config
        log_prob, entropies, value = self.policy.evaluate(batch.features, batch.sample)
        log_ratio = log_prob - batch.log_prob
        advantage = normalized(batch.advantage) if config.normalize_advantages else batch.advantage
        of_policy = policy_loss(log_ratio, advantage, config.clip_coef)
        of_value = value_loss(value, batch.value, batch.returns, config.clip_coef if config.clip_vloss else None)
        entropy = entropies.mean()
        loss = config.vf_coef * of_value
        if self.iteration >= config.critic_warmup_iterations:
            loss = loss + of_policy - config.ent_coef * entropy
        self.optimizer.zero_grad()
        torch.autograd.backward(loss)
        self.optimizer.step(config.max_grad_norm)
        return log_ratio.detach(), of_policy.detach(), of_value.detach(), entropy.detach()

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

    def create_checkpoint(self) -> Checkpoint:
        """Return weights, optimizer, normalisers, generators, counters and the frames stored since the last step."""
        self.saved_iteration = self.iteration
        meta = {
            "iteration": self.iteration,
            "saved_iteration": self.saved_iteration,
            "return_normalizer": self.return_normalizer.state_dict(),
            "rollout": self.rollout.state_dict(),
            "rng": rng_state(self.policy, self.generator),
        }
        model, optimizer = self.policy.state_dict(), self.optimizer.state_dict()
        return Checkpoint(step=self.global_step, model=model, optimizer=optimizer, meta=meta)

    def load_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Restore what `create_checkpoint` returned.

        Raises:
            CheckpointError: It is the state of another policy, optimizer or buffer; the text names sizes or groups.
        """
        meta = checkpoint.meta
        try:
            self.policy.load_state_dict(checkpoint.model)
            self.optimizer.load_state_dict(checkpoint.optimizer)
            self.rollout.load_state_dict(meta["rollout"])
        except (RuntimeError, ValueError) as error:
            raise CheckpointError(f"Checkpoint {checkpoint.step} does not fit this configuration: {error}") from error
        self.return_normalizer.load_state_dict(meta["return_normalizer"])
        load_rng_state(meta["rng"], self.policy, self.generator)
        self.global_step = checkpoint.step
        self.iteration, self.saved_iteration = meta["iteration"], meta["saved_iteration"]


def _explained_variance(value: torch.Tensor, returns: torch.Tensor) -> dict[str, float]:
    """Return how much of the returns' variance the values explained; nothing where there is no variance."""
    variance = float(returns.var(correction=0))
    if variance == 0:
        return {}
    return {"losses/explained_variance": 1 - float((returns - value).var(correction=0)) / variance}
