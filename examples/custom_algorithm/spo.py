"""An algorithm of one's own, `spo`: simple policy optimisation, for any actor-critic policy."""

import dataclasses
from typing import ClassVar

import torch
from plugrl_server.algorithm.on_policy.on_policy_algorithm import OnPolicyAlgorithm, normalized
from plugrl_server.algorithm.on_policy.on_policy_config import OnPolicyConfig
from plugrl_server.algorithm.registration import register_algo, register_algo_config
from plugrl_server.learning.optim import FlatAdam, Group


@register_algo_config("spo")
@dataclasses.dataclass
class SPOConfig(OnPolicyConfig):
    """SPO (Xie et al. 2024): PPO without clipping; a ratio that went too far is pulled back instead of let go."""

    policies: ClassVar = ("gaussian-policy", "categorical-policy")
    clip_coef: float = 0.2  # how far from 1 the probability ratio is best


def objective(ratio, advantage, clip_coef):
    """Return r A - |A| / (2 c) (r - 1)^2, whose maximum over r is at 1 + c or 1 - c, by the sign of A."""
    return ratio * advantage - advantage.abs() / (2 * clip_coef) * (ratio - 1).square()


@register_algo("spo")
class SPO(OnPolicyAlgorithm):
    """The base class stores frames, estimates advantages, schedules and saves; this one learns from the frames."""

    def make_optimizer(self):
        critic = list(self.policy.critic.parameters())
        actor = [weight for name, weight in self.policy.named_parameters() if not name.startswith("critic.")]
        of_actor, of_critic = self.learning_rates()
        return FlatAdam([Group(actor, of_actor), Group(critic, of_critic)])

    def update(self, frames):
        with torch.no_grad():
            old_log_prob, _, _ = self.policy.evaluate(frames.features, frames.sample)
        for _ in range(self.config.update_epochs):
            steps = [self.step(*batch) for batch in self.batches((frames, old_log_prob))]
            policy_loss, value_loss, kl = torch.stack(steps).mean(0).tolist()
            if self.config.target_kl is not None and kl > self.config.target_kl:
                break
        return {"losses/policy_loss": policy_loss, "losses/value_loss": value_loss, "losses/approx_kl": kl}

    def step(self, frames, old_log_prob):
        log_prob, _, value = self.policy.evaluate(frames.features, frames.sample)
        log_ratio = log_prob - old_log_prob
        advantage = normalized(frames.advantage) if self.config.normalize_advantages else frames.advantage
        policy_loss = -objective(log_ratio.exp(), advantage, self.config.clip_coef).mean()
        value_loss = (value - frames.returns).square().mean()
        self.optimizer.zero_grad()
        (value_loss if self.critic_warms_up else policy_loss + value_loss).backward()
        self.step_optimizer()
        kl = (log_ratio.exp() - 1 - log_ratio).mean()
        return torch.stack([policy_loss, value_loss, kl]).detach()
