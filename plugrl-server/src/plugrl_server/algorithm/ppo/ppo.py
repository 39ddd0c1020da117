"""Proximal policy optimisation (Schulman et al. 2017), read downwards: losses, learning, state.

Every iteration fills a buffer with frames of the current policy, then takes `update_epochs` passes of mini-batch steps
over it. The README beside this file says what differs from CleanRL's implementation, and why.
"""

from typing import Any, NamedTuple

import torch

from plugrl_server.algorithm.on_policy.on_policy_algorithm import VALUE_ROWS, Frames, OnPolicyAlgorithm, normalized
from plugrl_server.algorithm.ppo.ppo_config import PPOConfig
from plugrl_server.algorithm.registration import register_algo
from plugrl_server.common.config_error import ConfigError
from plugrl_server.learning import trees
from plugrl_server.learning.optim import FlatAdam, Group
from plugrl_server.learning.trees import Tree
from plugrl_server.policy.actor_critic.actor_critic import ActorCritic

# Mathematics -----------------------------------------------------------------------------------------------------


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


def approximate_kl(log_ratio: torch.Tensor) -> torch.Tensor:
    """Return mean (r - 1) - log r, an unbiased estimate of KL(old, new) that is never negative (Schulman 2020)."""
    return (log_ratio.exp() - 1 - log_ratio).mean()


def adapted_rate(rate: float, approx_kl: float, config: PPOConfig) -> float:
    """Return the learning rate after an epoch: a factor down above twice `desired_kl`, up below half of it.

    The rule of Schulman et al. 2017, section 4, on the step size, with the factor and bounds of rsl_rl.
    """
    if config.desired_kl is None:
        return rate
    if approx_kl > 2 * config.desired_kl:
        return max(config.min_learning_rate, rate / RATE_FACTOR)
    if approx_kl < config.desired_kl / 2:
        return min(config.max_learning_rate, rate * RATE_FACTOR)
    return rate


RATE_FACTOR = 1.5


class Samples(NamedTuple):
    """The frames of an iteration, or a mini-batch of them, as tensors on the policy's device.

    Attributes:
        features: What the networks take of the observation, a tree of [N, ...].
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


class Step(NamedTuple):
    """What one optimizer step tells, still on the device: log-ratios f4[N] before it, and f4[] losses and entropy.

    They are of the rows that this learner took, which are `weight` of the mini-batch: 1.0 where it is alone.
    """

    log_ratio: torch.Tensor
    policy_loss: torch.Tensor
    value_loss: torch.Tensor
    entropy: torch.Tensor
    weight: float


@register_algo("ppo")
class PPO(OnPolicyAlgorithm):
    """PPO on an actor-critic policy.

    Attributes:
        rate_scale: What `desired_kl` has made of the configured learning rates: a factor on all of them.
    """

    config: PPOConfig
    policy: ActorCritic

    def __init__(self, config: PPOConfig, policy: Any) -> None:
        if not isinstance(policy, ActorCritic):
            raise ConfigError(f"ppo needs an actor-critic policy such as gaussian-policy, got {type(policy).__name__}.")
        self.rate_scale = 1.0
        super().__init__(config, policy)

    def make_optimizer(self) -> FlatAdam:
        """Return Adam over all parameters in one group, or, where they differ in rates or steps, the critic's apart."""
        critic = list(self.policy.critic.parameters())
        of_critic = set(map(id, critic))
        actor = [parameter for parameter in self.policy.parameters() if id(parameter) not in of_critic]
        rates = self.learning_rates()
        groups = [actor + critic] if len(rates) == 1 else [actor, critic]
        return FlatAdam(
            [Group(group, rate, eps=self.config.adam_eps) for group, rate in zip(groups, rates, strict=True)]
        )

    def learning_rates(self) -> list[float]:
        """Return the rate of each group, before annealing."""
        rates = super().learning_rates()
        apart = self.config.critic_learning_rate is not None or self.config.critic_warmup_iterations > 0
        return [rate * self.rate_scale for rate in (rates if apart else rates[:1])]

    # Learning ----------------------------------------------------------------------------------------------------

    def update(self, frames: Frames) -> dict[str, float]:
        """Take the passes over the frames, and return the metrics."""
        samples = self.samples(frames)
        steps: list[Step] = []
        clipped: list[float] = []
        for _ in range(self.config.update_epochs):
            epoch = [self._step(batch) for batch in self.batches(samples)]
            steps += epoch
            log_ratio = torch.cat([step.log_ratio for step in epoch if step.weight])
            outside = (log_ratio.expm1().abs() > self.config.clip_coef).float().mean()
            share = torch.stack([approximate_kl(log_ratio), outside]) * (len(log_ratio) / len(samples.value))
            approx_kl, clip_fraction = self.add_up(share).tolist()
            clipped.append(clip_fraction)
            self._adapt(approx_kl)
            if self.config.target_kl is not None and approx_kl > self.config.target_kl:
                break
        columns = zip(*((step.policy_loss, step.value_loss, step.entropy) for step in steps), strict=True)
        told = torch.stack([torch.stack(column) for column in columns])
        weights = torch.tensor([step.weight for step in steps], device=told.device)
        names = ("losses/policy_loss", "losses/value_loss", "losses/entropy")
        means = dict(zip(names, self.add_up((weights * told).mean(1)).tolist(), strict=True))
        return {**means, "losses/approx_kl": approx_kl, "losses/clip_fraction": sum(clipped) / len(clipped)}

    @torch.no_grad()
    def samples(self, frames: Frames) -> Samples:
        """Return the frames with the log-probability of their samples, by the weights that acted."""
        rows = range(0, len(frames.value), VALUE_ROWS)
        parts = [trees.take((frames.features, frames.sample), slice(at, at + VALUE_ROWS)) for at in rows]
        log_prob = torch.cat([self.policy.evaluate(*part)[0] for part in parts])
        return Samples(frames.features, frames.sample, log_prob, frames.value, frames.advantage, frames.returns)

    def _step(self, batch: Samples) -> Step:
        """Take one optimizer step; while the critic warms up, on the critic alone."""
        config = self.config
        if config.normalize_advantages:  # by what the whole mini-batch says, also where learners share it
            batch = batch._replace(advantage=normalized(batch.advantage))
        batch, weight = self.shard(batch, len(batch.value))
        log_prob, entropies, value = self.policy.evaluate(batch.features, batch.sample)
        log_ratio = log_prob - batch.log_prob
        of_policy = policy_loss(log_ratio, batch.advantage, config.clip_coef)
        of_value = value_loss(value, batch.value, batch.returns, config.value_clip)
        entropy = entropies.mean()
        self.optimizer.zero_grad()
        if self.critic_warms_up:  # an encoder that actor and critic share stays as it is
            self.backward(config.vf_coef * of_value, weight, inputs=list(self.policy.critic.parameters()))
        else:
            self.backward(of_policy - config.ent_coef * entropy + config.vf_coef * of_value, weight)
        self.all_reduce_gradients(self.optimizer)
        self.step_optimizer()
        return Step(log_ratio.detach(), of_policy.detach(), of_value.detach(), entropy.detach(), weight)

    def _adapt(self, approx_kl: float) -> None:
        """Scale the learning rates by what the epoch's KL estimate says; the actor's keeps to its bounds."""
        rate = self.config.learning_rate * self.rate_scale
        adapted = adapted_rate(rate, approx_kl, self.config)
        if adapted != rate and not self.critic_warms_up:
            self.rate_scale = adapted / self.config.learning_rate
            self._anneal()

    # State -------------------------------------------------------------------------------------------------------

    def extra_state(self) -> dict[str, Any]:
        """Return the factor on the learning rates."""
        return {"rate_scale": self.rate_scale}

    def load_extra_state(self, state: dict[str, Any]) -> None:
        """Restore the factor on the learning rates."""
        self.rate_scale = state["rate_scale"]
