"""Diffusion policy policy optimisation (Ren et al. 2024, arXiv 2409.00588), read downwards: losses, storing, learning.

Each action is a chain of denoising steps, and each of the last K' of them is an action of a Markov decision process
inside the environment's. So PPO's surrogate is taken for each (frame, denoising step). k counts the K' steps from 0,
the noisiest. Buffers, advantages, schedules and checkpoints are those of every on-policy algorithm. The README beside
this file says what differs from the authors' implementation, and why.
"""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch

from plugrl_server.algorithm.base_algorithm import FeedbackRows
from plugrl_server.algorithm.collectives import weighed
from plugrl_server.algorithm.dppo.dppo_config import DPPOConfig
from plugrl_server.algorithm.evaluation.trained_policy import find_trained_policy
from plugrl_server.algorithm.on_policy.executed_steps import executed_of
from plugrl_server.algorithm.on_policy.on_policy_algorithm import Frames, OnPolicyAlgorithm, normalized
from plugrl_server.algorithm.registration import register_algo
from plugrl_server.common.config_error import ConfigError
from plugrl_server.learning import trees
from plugrl_server.learning.optim import FlatAdam, Group
from plugrl_server.policy.denoising.denoising_policy import DenoisingPolicy
from plugrl_server.policy.state import PolicyRuntimeState, PolicyTrainState, Tree

LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)
LOWEST_LOG_DENSITY, HIGHEST_LOG_DENSITY = -5.0, 2.0
PAIRS_AT_ONCE = 16_384

# Losses ----------------------------------------------------------------------------------------------------------


def step_log_prob(x_next: torch.Tensor, mean: torch.Tensor, std: torch.Tensor, executed: torch.Tensor) -> torch.Tensor:
    """Return log p of N denoising steps, f4[N]: mean of clamp(log N(x_next; mean, std), -5, 2) over executed actions.

    Args:
        x_next: The states the steps led to, f4[N, H, A].
        mean: Their means, f4[N, H, A].
        std: Their standard deviation, of a shape that broadcasts to it.
        executed: How many of the H actions were run, i8[N]; the others do not count.
    """
    log_density = -0.5 * ((x_next - mean) / std).square() - std.log() - LOG_SQRT_2PI
    clamped = log_density.clamp(LOWEST_LOG_DENSITY, HIGHEST_LOG_DENSITY).mean(-1)
    counts = torch.arange(clamped.shape[1], device=clamped.device) < executed[:, None]
    return (clamped * counts).sum(-1) / executed


def clip_coefs(num_steps: int, last: float, first: float, rate: float) -> torch.Tensor:
    """Return eps_k, f4[K']: first + (last - first) (exp(rate k / (K' - 1)) - 1) / (exp(rate) - 1); K' = 1: `last`."""
    if num_steps == 1:
        return torch.tensor([last])
    time = torch.arange(num_steps) / (num_steps - 1)
    return first + (last - first) * torch.expm1(rate * time) / math.expm1(rate)


def quantile_clipped(advantage: torch.Tensor, quantile: float) -> torch.Tensor:
    """Return advantages clipped to their own quantiles `quantile` and `1 - quantile`."""
    return advantage.clamp(advantage.quantile(quantile), advantage.quantile(1 - quantile))


def denoising_discounts(num_steps: int, gamma: float) -> torch.Tensor:
    """Return what the advantage is worth at each step, f4[K']: gamma ** (K' - 1 - k)."""
    return gamma ** torch.arange(num_steps - 1, -1, -1, dtype=torch.float32)


def policy_loss(log_ratio: torch.Tensor, advantage: torch.Tensor, clip_coef: torch.Tensor) -> torch.Tensor:
    """Return PPO's objective as a loss, each pair with its own eps: mean max(-A r, -A clip(r, 1 - eps, 1 + eps))."""
    ratio = log_ratio.exp()
    clipped = torch.minimum(torch.maximum(ratio, 1 - clip_coef), 1 + clip_coef)
    return -torch.minimum(advantage * ratio, advantage * clipped).mean()


def value_loss(value: torch.Tensor, returns: torch.Tensor) -> torch.Tensor:
    """Return 0.5 mean (V - R)^2."""
    return 0.5 * (value - returns).square().mean()


class Step(NamedTuple):
    """What one optimizer step tells, still on the device: a learner's share of it, where several share the step.

    Attributes:
        approx_kl: Sum over its pairs of (r - 1) - log r, f4[].
        clipped: How many of them had a ratio outside their interval, f4[].
        policy_loss: f4[].
        value_loss: f4[].
    """

    approx_kl: torch.Tensor
    clipped: torch.Tensor
    policy_loss: torch.Tensor
    value_loss: torch.Tensor


@register_algo("dppo")
class DPPO(OnPolicyAlgorithm):
    """DPPO on a diffusion or flow policy.

    Attributes:
        finetuned_steps: K', the last denoising steps, which learn.
        executed_steps: How many actions of a chunk are run, where no episode ends before.
    """

    config: DPPOConfig
    policy: DenoisingPolicy

    def __init__(self, config: DPPOConfig, policy: Any) -> None:
        if not isinstance(policy, DenoisingPolicy):
            raise ConfigError(f"dppo needs a denoising policy such as dppo-policy, got {type(policy).__name__}.")
        config.check_policy(type(policy).__name__, policy.config)
        if config.policy_checkpoint_path is not None:
            find_trained_policy(config.policy_checkpoint_path).load_into(policy)
        self.finetuned_steps = policy.num_steps if config.finetuned_steps is None else config.finetuned_steps
        self.executed_steps = policy.action_horizon if config.executed_steps is None else config.executed_steps
        policy.kept_steps = self.finetuned_steps
        early_steps = policy.num_steps - self.finetuned_steps
        if policy.early_steps != early_steps:  # else they go on with the weights an earlier fine-tuning froze
            policy.freeze_early_steps(early_steps)
        super().__init__(config, policy)
        eps = clip_coefs(self.finetuned_steps, config.clip_coef, config.clip_coef_base, config.clip_coef_rate)
        self._clip_coefs = eps.to(policy.device)
        self._discounts = denoising_discounts(self.finetuned_steps, config.gamma_denoising).to(policy.device)

    def make_optimizer(self) -> FlatAdam:
        """Return AdamW over the actor and the critic, a group each."""
        parts = (self.policy.actor_parameters(), self.policy.critic_parameters())
        decay = self.config.weight_decay
        groups = zip(parts, self.learning_rates(), strict=True)
        return FlatAdam([Group(list(part), rate, weight_decay=decay) for part, rate in groups])

    # Storing -----------------------------------------------------------------------------------------------------

    def derive_train_state(self, runtime_state: PolicyRuntimeState) -> PolicyTrainState:
        """Keep the end of the chain, f4[n, K' + 1, H, A], and how many actions of a chunk are run, i8[n]."""
        chain = runtime_state["chain"]
        return {"chain": chain, "executed": np.full(len(chain), self.executed_steps)}

    def _store(self, rows: FeedbackRows) -> None:
        rows.train_state = {**rows.train_state, "executed": executed_of(rows, self.executed_steps)}
        super()._store(rows)

    # Learning ----------------------------------------------------------------------------------------------------

    def update(self, frames: Frames) -> dict[str, float]:
        """Take the passes over the frames, and return the metrics."""
        old_log_prob = self._old_log_probs(frames)
        told: list[torch.Tensor] = []
        for _ in range(self.config.update_epochs):
            epoch = [self._step(frames, old_log_prob, *indices) for indices in self._mini_batches(len(frames.value))]
            told.append(self.add_up(torch.stack([torch.stack(step) for step in epoch])))
            approx_kl = float(told[-1][:, 0].sum()) / len(old_log_prob)
            if self.config.target_kl is not None and approx_kl > self.config.target_kl:
                break
        steps = Step(*torch.cat(told).unbind(1))
        return {
            "losses/policy_loss": float(steps.policy_loss.mean()),
            "losses/value_loss": float(steps.value_loss.mean()),
            "losses/approx_kl": approx_kl,
            "losses/clip_fraction": float(steps.clipped.sum()) / (len(told) * len(old_log_prob)),
        }

    def _mini_batches(self, rows: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Yield an epoch's mini-batches: pairs for the actor, frame * K' + k, and frames for the critic, each i8[N]."""
        size, device = self.config.batch_size, self.policy.device
        pairs = torch.randperm(rows * self.finetuned_steps, generator=self.generator).to(device)
        order = torch.randperm(rows, generator=self.generator).to(device)
        yield from zip(torch.split(pairs, size * self.finetuned_steps), torch.split(order, size), strict=True)

    def _log_prob(self, frames: Frames, pair: torch.Tensor) -> torch.Tensor:
        """Return log p of pairs under the weights as they are, f4[N]."""
        frame, k = pair // self.finetuned_steps, pair % self.finetuned_steps
        chain = frames.sample["chain"].flatten(0, 1)
        state = frame * (self.finetuned_steps + 1) + k
        step = self.policy.num_steps - self.finetuned_steps + k
        mean, std = self.policy.denoise_step(self._condition(frames, frame), chain.index_select(0, state), step)
        executed = frames.sample["executed"].index_select(0, frame)
        x_next = chain.index_select(0, state + 1)
        return step_log_prob(x_next, mean, std.clamp(min=self.config.min_logprob_std), executed)

    def _condition(self, frames: Frames, frame: torch.Tensor) -> Tree:
        """Return what steps of these frames are conditioned on; images are encoded once for all steps of a frame."""
        if not self.policy.image_keys:
            return self.policy.condition(_select(frames.features, frame))
        some, place = torch.unique(frame, return_inverse=True)
        return _select(self.policy.condition(_select(frames.features, some)), place)

    @torch.no_grad()
    def _old_log_probs(self, frames: Frames) -> torch.Tensor:
        """Return log p of every pair under the weights that acted, f4[N * K']."""
        pairs = torch.arange(len(frames.value) * self.finetuned_steps, device=self.policy.device)
        return torch.cat([self._log_prob(frames, part) for part in torch.split(pairs, PAIRS_AT_ONCE)])

    def _advantages(self, frames: Frames, pair: torch.Tensor) -> torch.Tensor:
        """Return A_k of pairs: their frames' advantages normalised, clipped to quantiles, and discounted, f4[N]."""
        advantage = frames.advantage.index_select(0, pair // self.finetuned_steps)
        if self.config.normalize_advantages:
            advantage = normalized(advantage)
        if self.config.advantage_quantile is not None:
            advantage = quantile_clipped(advantage, self.config.advantage_quantile)
        return advantage * self._discounts[pair % self.finetuned_steps]

    def _step(self, frames: Frames, old_log_prob: torch.Tensor, pair: torch.Tensor, order: torch.Tensor) -> Step:
        """Take one optimizer step: the actor's from `pair`, the critic's from `order`."""
        (pair, advantage), of_pairs = self.shard((pair, self._advantages(frames, pair)), len(pair))
        order, of_frames = self.shard(order, len(order))
        log_ratio = self._log_prob(frames, pair) - old_log_prob.index_select(0, pair)
        eps = self._clip_coefs[pair % self.finetuned_steps]
        of_policy = weighed(policy_loss(log_ratio, advantage, eps), of_pairs)
        value = self.policy.value(_select(frames.features, order))
        of_value = weighed(value_loss(value, frames.returns.index_select(0, order)), of_frames)
        self.optimizer.zero_grad()
        torch.autograd.backward(of_value if self.critic_warms_up else of_value + of_policy)
        self.all_reduce_gradients(self.optimizer)
        self.step_optimizer()
        log_ratio = log_ratio.detach() if of_pairs else log_ratio.detach()[:0]  # without a pair of its own it tells 0
        difference = log_ratio.expm1()
        return Step(
            (difference - log_ratio).sum(),
            (difference.abs() > eps[: len(difference)]).sum().float(),
            of_policy.detach(),
            of_value.detach(),
        )

    # State -------------------------------------------------------------------------------------------------------

    def extra_state(self) -> dict[str, Any]:
        """Return K', which the frames and the frozen weights belong to."""
        return {"finetuned_steps": self.finetuned_steps}

    def load_extra_state(self, state: dict[str, Any]) -> None:
        """Refuse the state of a run that fine-tuned another number of steps."""
        if state["finetuned_steps"] != self.finetuned_steps:
            raise ValueError(f"{self.finetuned_steps} denoising steps learn here, {state['finetuned_steps']} there.")


def _select(tree: Tree, rows: torch.Tensor) -> Tree:
    return trees.map_leaves(lambda leaf: leaf.index_select(0, rows), tree)
