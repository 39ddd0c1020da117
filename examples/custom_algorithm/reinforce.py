"""REINFORCE with a learned baseline, as an algorithm of one's own: `reinforce`, for any actor-critic policy."""

import dataclasses
from typing import ClassVar

import numpy as np
import torch
from plugrl_server.algorithm.base_algorithm import BaseAlgoConfig, BaseAlgorithm
from plugrl_server.algorithm.registration import register_algo, register_algo_config
from plugrl_server.common.checkpoint_manager import Checkpoint
from plugrl_server.learning.rollout_buffer import RolloutBuffer


@register_algo_config("reinforce")
@dataclasses.dataclass
class ReinforceConfig(BaseAlgoConfig):
    """REINFORCE (Williams 1992): raise the probability of what earned more than the critic expected."""

    policies: ClassVar = ("gaussian-policy", "categorical-policy")
    global_steps: int | None = 50_000
    buffer_size: int = 512  # frames of one iteration, over all environments
    learning_rate: float = 3e-3
    gamma: float = 0.99
    save_interval: int = 5000  # frames between checkpoints


def rewards_to_go(stored, gamma):
    """Return what each frame and those after it in its episode earned, f4[N]."""
    earned = stored.reward.copy()
    for slot in reversed(range(len(earned))):
        if not stored.cut[slot]:
            earned[slot] += gamma * earned[stored.successor[slot]]
    return earned


@register_algo("reinforce")
class Reinforce(BaseAlgorithm):
    """Fills a buffer with frames of the current policy, takes one step on all of them, and forgets them."""

    def __init__(self, config, policy):
        super().__init__(config=config, policy=policy)
        self.saved_step = 0
        self.rollout = RolloutBuffer(config.buffer_size)
        self.optimizer = torch.optim.Adam(policy.parameters(), config.learning_rate)

    def infer(self, obs):
        return self.policy.get_action_and_runtime_state(obs)

    def derive_train_state(self, runtime_state):
        return runtime_state["sample"]

    def feedback(self, *, obs, train_state, next_obs, reward, info, next_terminated, next_truncated, prev_node, **_):
        outcome = {"terminated": np.array([next_terminated]), "truncated": np.array([next_truncated])}
        observed = {"obs": self.policy.observe(obs), "next_obs": self.policy.observe(next_obs)}
        reward = np.array([reward], np.float32)
        (node,) = self.rollout.add(**observed, train_state=train_state, reward=reward, **outcome, nodes=[prev_node])
        self.record_finished_episode(info, next_terminated, next_truncated)
        return node, self.global_step + 1, {}

    def learn_impl(self):
        stored, device = self.rollout.stored(), self.policy.device
        earned = torch.from_numpy(rewards_to_go(stored, self.config.gamma)).to(device)
        sample = torch.from_numpy(stored.train_state).to(device)
        log_prob, _, value = self.policy.evaluate(self.policy.features(stored.obs), sample)
        advantage = earned - value.detach()
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        policy_loss, value_loss = -(advantage * log_prob).mean(), (value - earned).square().mean()
        self.optimizer.zero_grad()
        (policy_loss + 0.5 * value_loss).backward()
        self.optimizer.step()
        self.policy.update_normalizer(stored.obs)
        self.rollout.clear()  # or should_learn() would stay true, and the server would never infer again
        return self.global_step, {"losses/policy_loss": policy_loss.item(), "losses/value_loss": value_loss.item()}

    def should_learn(self):
        return self.rollout.full

    def should_save(self):
        return self.global_step - self.saved_step >= self.config.save_interval

    def should_stop(self):
        steps = self.config.global_steps
        return steps is not None and self.global_step >= steps and not self.should_learn()

    def create_checkpoint(self):
        self.saved_step = self.global_step  # or should_save() would stay true: a checkpoint on every turn
        meta = {"rollout": self.rollout.state_dict(), "rng": self.policy.rng_state()}
        return Checkpoint(self.global_step, self.policy.state_dict(), self.optimizer.state_dict(), meta)

    def load_checkpoint(self, checkpoint):
        self.global_step = self.saved_step = checkpoint.step
        self.policy.load_state_dict(checkpoint.model)
        self.optimizer.load_state_dict(checkpoint.optimizer)
        self.rollout.load_state_dict(checkpoint.meta["rollout"])
        self.policy.load_rng_state(checkpoint.meta["rng"])
