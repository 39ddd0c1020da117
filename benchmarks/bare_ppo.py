"""PPO's learn step as one writes it by hand for one experiment: the floor that `learner.py` holds ours against.

The same mathematics as `plugrl_server.algorithm.ppo` with its default flags, and nothing else: rollouts of equal length
stacked as [T, E, ...], mini-batches by one `torch.index_select` of each stacked tensor, no logging, no chains, no
checkpoints. A test takes both through the same rollout and compares the weights.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from sb3_ppo import PPOSettings
from torch import nn

CLIP = 10.0
OPTIMIZERS = ("flat", "fused", "foreach")


@dataclass(frozen=True)
class Rollout:
    """T steps of E environments; `done` frames terminate, and `last_obs` follows the last step."""

    obs: torch.Tensor  # f4[T, E, obs_dim]
    action: torch.Tensor  # f4[T, E, action_dim]
    reward: torch.Tensor  # f4[T, E]
    done: torch.Tensor  # b1[T, E]
    last_obs: torch.Tensor  # f4[E, obs_dim]


class ActorCritic(nn.Module):
    """Tanh MLPs for the mean and the value, and a free log standard deviation."""

    def __init__(self, obs_dim: int, action_dim: int, hidden: tuple[int, int]) -> None:
        super().__init__()
        self.actor = _mlp(obs_dim, hidden, action_dim)
        self.critic = _mlp(obs_dim, hidden, 1)
        self.log_std = nn.Parameter(torch.zeros(action_dim))

    def evaluate(self, obs: torch.Tensor, action: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Log-probability, entropy and value of N frames, each f4[N] (the entropy a scalar)."""
        distance = (action - self.actor(obs)) * torch.exp(-self.log_std)
        constant = self.log_std.sum() + 0.5 * math.log(2 * math.pi) * len(self.log_std)
        log_prob = -0.5 * distance.square().sum(-1) - constant
        return log_prob, constant + 0.5 * len(self.log_std), self.critic(obs).squeeze(-1)


class RunningMoments:
    """Running mean and variance of the rows it was shown."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.mean = torch.zeros(shape, dtype=torch.float64)
        self.variance = torch.ones(shape, dtype=torch.float64)
        self.count = 0

    def update(self, rows: torch.Tensor) -> None:
        """Take more rows [N, *shape] into account."""
        rows = rows.double()
        delta, total = rows.mean(0) - self.mean, self.count + len(rows)
        spread = self.variance * self.count + rows.var(0, correction=0) * len(rows)
        self.variance = (spread + delta**2 * self.count * len(rows) / total) / total
        self.mean = self.mean + delta * len(rows) / total
        self.count = total

    def scale(self) -> torch.Tensor:
        """One over the standard deviation."""
        return (self.variance + 1e-8).rsqrt().float()


class BarePPO:
    """Everything a run keeps between two learn steps.

    Args:
        net: The networks.
        settings: Hyper-parameters.
        optimizer: `fused` or `foreach` for `torch.optim.Adam`, `flat` for the same Adam on one flat tensor.
        seed: Of the mini-batches.
    """

    def __init__(self, net: ActorCritic, settings: PPOSettings, optimizer: str = "fused", seed: int = 0) -> None:
        self.net, self.settings = net, settings
        self.of_obs = RunningMoments((net.actor[0].in_features,))
        self.of_returns = RunningMoments(())
        self.carried: torch.Tensor | None = None
        self.generator = torch.Generator()
        self.generator.manual_seed(seed)
        self.parameters = [*net.actor.parameters(), net.log_std, *net.critic.parameters()]
        self.flat = flat_views(self.parameters) if optimizer == "flat" else None
        trained = self.parameters if self.flat is None else [self.flat]
        kind = {"foreach": True} if optimizer == "foreach" else {"fused": True}
        self.optimizer = torch.optim.Adam(trained, lr=settings.learning_rate, eps=settings.adam_eps, **kind)

    def learn(self, rollout: Rollout, learning_rate: float) -> None:
        """One learn step: `update_epochs` passes of mini-batch steps over the rollout."""
        s = self.settings
        self.optimizer.param_groups[0]["lr"] = learning_rate
        with torch.no_grad():
            obs = self.normalized(rollout.obs).flatten(0, 1)
            action = rollout.action.flatten(0, 1)
            old_log_prob, _, old_value = self.net.evaluate(obs, action)
            last_value = self.net.critic(self.normalized(rollout.last_obs)).squeeze(-1)
            values = torch.cat([old_value.view_as(rollout.reward), last_value[None]])
            advantage = gae(self.scaled(rollout), values, rollout.done, s.gamma, s.gae_lambda)
            returns = advantage + values[:-1]
        frames = (obs, action, old_log_prob, old_value, advantage.flatten(), returns.flatten())
        for _ in range(s.update_epochs):
            order = torch.randperm(len(obs), generator=self.generator)
            for index in order.split(s.batch_size):
                self.step(self.loss(*(stacked.index_select(0, index) for stacked in frames)))
        self.of_obs.update(rollout.obs.flatten(0, 1))

    def loss(
        self,
        obs: torch.Tensor,
        action: torch.Tensor,
        old_log_prob: torch.Tensor,
        old_value: torch.Tensor,
        advantage: torch.Tensor,
        returns: torch.Tensor,
    ) -> torch.Tensor:
        """PPO's loss of a mini-batch."""
        s, clip = self.settings, self.settings.clip_coef
        log_prob, entropy, value = self.net.evaluate(obs, action)
        ratio = (log_prob - old_log_prob).exp()
        a = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        policy_loss = -torch.min(a * ratio, a * ratio.clamp(1 - clip, 1 + clip)).mean()
        clipped = old_value + (value - old_value).clamp(-clip, clip)
        value_loss = 0.5 * torch.max((value - returns).square(), (clipped - returns).square()).mean()
        return policy_loss - s.ent_coef * entropy + s.vf_coef * value_loss

    def step(self, loss: torch.Tensor) -> None:
        """One optimizer step."""
        if self.flat is None:
            self.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.parameters, self.settings.max_grad_norm)
        else:
            self.flat.grad.zero_()
            loss.backward()
            self.flat.grad.mul_((self.settings.max_grad_norm / (self.flat.grad.norm() + 1e-6)).clamp(max=1.0))
        self.optimizer.step()

    def normalized(self, obs: torch.Tensor) -> torch.Tensor:
        """Observations by the running statistics, clipped."""
        return ((obs - self.of_obs.mean.float()) * self.of_obs.scale()).clamp(-CLIP, CLIP)

    def scaled(self, rollout: Rollout) -> torch.Tensor:
        """Rewards over the standard deviation of the discounted return, clipped, f4[T, E]."""
        carried = torch.zeros_like(rollout.reward[0]) if self.carried is None else self.carried
        sums = torch.empty_like(rollout.reward)
        going_on = (~rollout.done).float()
        for t in range(len(sums)):
            sums[t] = carried = rollout.reward[t] + self.settings.gamma * carried
            carried = carried * going_on[t]
        self.carried = carried
        self.of_returns.update(sums.flatten())
        return (rollout.reward * self.of_returns.scale()).clamp(-CLIP, CLIP)


def gae(
    rewards: torch.Tensor, values: torch.Tensor, done: torch.Tensor, gamma: float, gae_lambda: float
) -> torch.Tensor:
    """Generalised advantages f4[T, E] of rewards [T, E] and values [T + 1, E]."""
    going_on = (~done).float()
    advantage = rewards + gamma * values[1:] * going_on - values[:-1]
    for t in reversed(range(len(rewards) - 1)):
        advantage[t] += gamma * gae_lambda * going_on[t] * advantage[t + 1]
    return advantage


def flat_views(parameters: list[nn.Parameter]) -> nn.Parameter:
    """One flat parameter that the others, and their gradients, become views of."""
    flat = nn.Parameter(torch.cat([parameter.detach().reshape(-1) for parameter in parameters]))
    flat.grad = torch.zeros_like(flat)
    start = 0
    for parameter in parameters:
        part = slice(start, start + parameter.numel())
        parameter.data, parameter.grad = flat.data[part].view_as(parameter), flat.grad[part].view_as(parameter)
        start = part.stop
    return flat


def _mlp(inputs: int, hidden: tuple[int, int], outputs: int) -> nn.Sequential:
    first, second = hidden
    return nn.Sequential(
        nn.Linear(inputs, first), nn.Tanh(), nn.Linear(first, second), nn.Tanh(), nn.Linear(second, outputs)
    )
