"""Flow policy optimisation, read downwards: losses of flow matching, ratios, objectives, the update, the state.

FPO (McAllister et al. 2025, arXiv 2507.21053) is PPO with a ratio that needs no density: how much better the velocity
field has come to match a chunk, by the flow-matching loss of fixed draws of time and noise. FPO++ (Yi, Choi et al.
2026, arXiv 2602.02481) takes a ratio of each draw by itself. The README beside this file says what differs, and why.
"""

from typing import Any, NamedTuple

import numpy as np
import torch

from plugrl_server.algorithm.base_algorithm import FeedbackRows
from plugrl_server.algorithm.collectives import weighed
from plugrl_server.algorithm.evaluation.trained_policy import find_trained_policy
from plugrl_server.algorithm.fpo.fpo_config import FPOConfig
from plugrl_server.algorithm.on_policy.executed_steps import executed_of
from plugrl_server.algorithm.on_policy.on_policy_algorithm import Frames, OnPolicyAlgorithm, normalized
from plugrl_server.algorithm.registration import register_algo
from plugrl_server.common.config_error import ConfigError
from plugrl_server.learning import trees
from plugrl_server.learning.optim import FlatAdam, Group
from plugrl_server.policy.flow.flow_policy import FlowPolicy
from plugrl_server.policy.state import PolicyRuntimeState, PolicyTrainState, Tree

ACTOR, CRITIC = 0, 1
LOSS_ROWS = 4096
"""Chunks whose old losses are computed at once."""

# Flow matching ---------------------------------------------------------------------------------------------------
# t = 1 is noise eps, t = 0 the chunk a. Shapes: a [N, H, A]; eps, x and v [N, S, H, A]; t [N, S].


def interpolated(sample: torch.Tensor, noise: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
    """Return the points x_t = t eps + (1 - t) a of the straight paths, [N, S, H, A]."""
    t = time[..., None, None]
    return t * noise + (1 - t) * sample[:, None]


def velocity_error(velocity: torch.Tensor, sample: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    """Return v - u with u = eps - a, [N, S, H, A]."""
    return velocity - (noise - sample[:, None])


def noise_error(velocity: torch.Tensor, x: torch.Tensor, noise: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
    """Return eps - (x_t - t v + v), what the velocity's guess of the noise lacks; (1 - t) times `velocity_error`."""
    t = time[..., None, None]
    return noise - (x - t * velocity + velocity)


def squared(error: torch.Tensor, huber_delta: float | None) -> torch.Tensor:
    """Return e^2, or, where |e| is above a huber_delta, the line 2 delta |e| - delta^2 that goes on from there."""
    if huber_delta is None:
        return error.square()
    size = error.abs()
    inside = size.clamp(max=huber_delta)
    return inside * (2 * size - inside)


def chunk_losses(terms: torch.Tensor, executed: torch.Tensor, mean: bool) -> torch.Tensor:
    """Return the loss of each draw [N, S]: its terms [N, S, H, A] summed, or their mean, over the steps that were run.

    Args:
        terms: Squared errors.
        executed: How many of the H actions were run, i8[N].
        mean: Divide by the number of terms.
    """
    run = torch.arange(terms.shape[2], device=terms.device) < executed[:, None]
    total = (terms.sum(3) * run[:, None]).sum(2)
    return total / (executed[:, None] * terms.shape[3]) if mean else total


# Ratios and objectives -------------------------------------------------------------------------------------------


def straight_through_clamp(value: torch.Tensor, limit: float | None) -> torch.Tensor:
    """Return a value clamped to +-limit whose gradient is that of the value itself."""
    return value if limit is None else value + (value.clamp(-limit, limit) - value).detach()


def log_ratios(
    old_loss: torch.Tensor, loss: torch.Tensor, per_sample: bool, difference_clamp: float | None
) -> torch.Tensor:
    """Return the logarithm of rho from losses [N, S]: of each draw [N, S], or of the chunk [N, 1], by the mean loss."""
    difference = old_loss - loss
    if not per_sample:
        difference = difference.mean(1, keepdim=True)
    return straight_through_clamp(difference, difference_clamp)


def ppo_objective(ratio: torch.Tensor, advantage: torch.Tensor, clip_coef: float) -> torch.Tensor:
    """Return min(r A, clip(r, 1 - c, 1 + c) A), elementwise."""
    return torch.minimum(ratio * advantage, ratio.clamp(1 - clip_coef, 1 + clip_coef) * advantage)


def spo_objective(ratio: torch.Tensor, advantage: torch.Tensor, clip_coef: float) -> torch.Tensor:
    """Return r A - |A| / (2 c) (r - 1)^2, elementwise: best at r = 1 +- c, and pulled back from beyond."""
    return ratio * advantage - advantage.abs() / (2 * clip_coef) * (ratio - 1).square()


def aspo_objective(ratio: torch.Tensor, advantage: torch.Tensor, clip_coef: float) -> torch.Tensor:
    """Return PPO's objective where the advantage is above 0, and SPO's where it is not."""
    clipped, penalised = (objective(ratio, advantage, clip_coef) for objective in (ppo_objective, spo_objective))
    return torch.where(advantage > 0, clipped, penalised)


def value_loss(value: torch.Tensor, returns: torch.Tensor) -> torch.Tensor:
    """Return mean (V - R)^2."""
    return (value - returns).square().mean()


OBJECTIVES = {"ppo": ppo_objective, "aspo": aspo_objective}


class Batch(NamedTuple):
    """N frames as learning takes them, on the policy's device.

    Attributes:
        features: What the networks take of the observation, a tree of [N, ...].
        sample: The chunks a before they were mapped to the environment's bounds, f4[N, H, A].
        executed: How many of the H actions were run, i8[N].
        noise: eps, drawn once an iteration, f4[N, S, H, A].
        time: t, drawn with it, f4[N, S].
        old_loss: Loss of each draw under the weights that acted, f4[N, S].
        advantage: f4[N].
        returns: f4[N].
    """

    features: Tree
    sample: torch.Tensor
    executed: torch.Tensor
    noise: torch.Tensor
    time: torch.Tensor
    old_loss: torch.Tensor
    advantage: torch.Tensor
    returns: torch.Tensor


@register_algo("fpo")
class FPO(OnPolicyAlgorithm):
    """FPO and FPO++ on a flow policy.

    Attributes:
        updates: Optimizer steps taken.
        executed_steps: How many actions of a chunk are run, where no episode ends before.
    """

    config: FPOConfig
    policy: FlowPolicy

    def __init__(self, config: FPOConfig, policy: Any) -> None:
        if not isinstance(policy, FlowPolicy):
            raise ConfigError(f"fpo needs a flow policy such as fpo-policy, got {type(policy).__name__}.")
        config.check_policy(type(policy).__name__, policy.config)
        if config.policy_checkpoint_path is not None:
            find_trained_policy(config.policy_checkpoint_path).load_into(policy)
        super().__init__(config, policy)
        self.updates = 0
        self.executed_steps = policy.action_horizon if config.executed_steps is None else config.executed_steps
        policy.kept_steps = 0  # of the chain only its end is learned from

    def make_optimizer(self) -> FlatAdam:
        """Return AdamW with a group for the actor and one for the critic."""
        actor, critic = list(self.policy.actor_parameters()), list(self.policy.critic_parameters())
        of_actor, of_critic = self.learning_rates()
        decay = self.config.weight_decay
        return FlatAdam(
            [
                Group(actor, of_actor, betas=self.config.betas, weight_decay=decay),
                Group(critic, of_critic, weight_decay=decay),
            ]
        )

    # Storing -----------------------------------------------------------------------------------------------------

    def derive_train_state(self, runtime_state: PolicyRuntimeState) -> PolicyTrainState:
        """Keep the chunk as the flow ended in it, f4[n, H, A], and how many of its actions are run, i8[n]."""
        chunk = runtime_state["chain"][:, -1]
        return {"chunk": chunk, "executed": np.full(len(chunk), self.executed_steps)}

    def _store(self, rows: FeedbackRows) -> None:
        rows.train_state = {**rows.train_state, "executed": executed_of(rows, self.executed_steps)}
        super()._store(rows)

    # Learning ----------------------------------------------------------------------------------------------------

    def update(self, frames: Frames) -> dict[str, float]:
        """Draw times and noises, take the passes over the frames, and return the metrics."""
        batch = self.draw(frames)
        told: list[torch.Tensor] = []
        average: torch.Tensor | None = None
        for _ in range(self.config.update_epochs):
            epoch = []
            for mini_batch in self.batches(batch):
                epoch.append(self._step(mini_batch))
                average = self._averaged(average)
            told.append(self.add_up(torch.stack(epoch)))
            if self.config.target_kl is not None:
                approx_kl = told[-1].mean(0)[METRICS.index("approx_kl")]
                if approx_kl > self.config.target_kl:
                    break
        if average is not None:
            self.optimizer.set_weights(ACTOR, average)
        return dict(zip(METRIC_NAMES, torch.cat(told).mean(0).tolist(), strict=True))

    @torch.no_grad()
    def draw(self, frames: Frames) -> Batch:
        """Return the frames with S draws each and their old losses, by the weights that acted."""
        sample, executed = frames.sample["chunk"], frames.sample["executed"]
        shape = (len(sample), self.config.num_samples)
        device = self.policy.device
        time = torch.rand(shape, generator=self.generator).to(device)
        noise = torch.randn(*shape, *sample.shape[1:], generator=self.generator).to(device)
        batch = Batch(frames.features, sample, executed, noise, time, time, frames.advantage, frames.returns)
        parts = [slice(start, start + LOSS_ROWS) for start in range(0, len(sample), LOSS_ROWS)]
        old_loss = torch.cat([self.flow_losses(trees.take(batch, part)) for part in parts])
        return batch._replace(old_loss=old_loss)

    def flow_losses(self, batch: Batch) -> torch.Tensor:
        """Return the flow-matching loss of each draw under the weights of now, f4[N, S]."""
        config, policy = self.config, self.policy
        s = batch.time.shape[1]
        x = interpolated(batch.sample, batch.noise, batch.time)
        condition = trees.map_leaves(lambda leaf: leaf.repeat_interleave(s, 0), policy.condition(batch.features))
        velocity = policy.velocity(condition, x.flatten(0, 1), batch.time.flatten()).view_as(x)
        if config.flow_loss == "u":
            error = velocity_error(velocity, batch.sample, batch.noise)
        else:
            error = noise_error(velocity, x, batch.noise, batch.time)
        loss = chunk_losses(squared(error, config.huber_delta), batch.executed, config.loss_reduction == "mean")
        return loss if config.loss_clamp is None else loss.clamp(max=config.loss_clamp)

    def advantages(self, advantage: torch.Tensor) -> torch.Tensor:
        """Return the advantages of a whole mini-batch as the objective takes them: normalised, shifted and clamped."""
        config = self.config
        if config.normalize_advantages:
            advantage = normalized(advantage)
        advantage = advantage + config.advantage_shift
        limit = config.advantage_clamp
        return advantage if limit is None else advantage.clamp(-limit, limit)

    def policy_loss(
        self, batch: Batch, advantage: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return the actor's loss, and the losses and logarithms of the ratios it was made of.

        Args:
            batch: A mini-batch, or the rows of it that one learner takes.
            advantage: Of these rows, from `advantages`; None where they are the whole mini-batch.
        """
        config = self.config
        loss = self.flow_losses(batch)
        log_ratio = log_ratios(batch.old_loss, loss, config.ratio == "per-sample", config.difference_clamp)
        if advantage is None:
            advantage = self.advantages(batch.advantage)
        objective = OBJECTIVES[config.objective](log_ratio.exp(), advantage[:, None], config.clip_coef)
        return -objective.mean(), loss, log_ratio

    def _step(self, batch: Batch) -> torch.Tensor:
        """Take one optimizer step; returns this learner's share of the `METRICS`, in their order, on the device."""
        config = self.config
        whole = (batch, self.advantages(batch.advantage))
        (batch, advantage), weight = self.shard(whole, len(batch.advantage))
        of_policy, flow_loss, log_ratio = self.policy_loss(batch, advantage)
        of_value = value_loss(self.policy.value(batch.features), batch.returns)
        loss = config.vf_coef * of_value
        if not self.critic_warms_up:
            loss = loss + of_policy
        self.optimizer.zero_grad()
        self.backward(loss, weight)
        self.all_reduce_gradients(self.optimizer)
        self.step_optimizer()
        with torch.no_grad():
            ratio = log_ratio.exp()
            clipped = ((ratio - 1).abs() > config.clip_coef).float().mean()
            approx_kl = (ratio - 1 - log_ratio).mean()
            told = torch.stack([of_policy.detach(), of_value.detach(), flow_loss.mean(), approx_kl, clipped])
            share: torch.Tensor = weighed(told, weight)
            return share

    def _averaged(self, average: torch.Tensor | None) -> torch.Tensor | None:
        """Count an optimizer step, and return the running average of the actor's weights with those of now."""
        self.updates += 1
        if self.config.ema_decay is None or self.updates <= self.config.ema_start:
            return None
        weights = self.optimizer.weights(ACTOR)
        return weights.clone() if average is None else average.lerp_(weights, 1 - self.config.ema_decay)

    # State -------------------------------------------------------------------------------------------------------

    def extra_state(self) -> dict[str, Any]:
        """Return how many optimizer steps were taken."""
        return {"updates": self.updates}

    def load_extra_state(self, state: dict[str, Any]) -> None:
        """Restore what `extra_state` returned."""
        self.updates = state["updates"]


METRICS = ("policy_loss", "value_loss", "flow_loss", "approx_kl", "clip_fraction")
METRIC_NAMES = tuple(f"losses/{name}" for name in METRICS)
