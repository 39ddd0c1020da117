"""REINFORCE with a learned baseline, as an algorithm of one's own: `reinforce`, for any actor-critic policy."""

import dataclasses
from typing import Any, ClassVar

import numpy as np
import torch
from plugrl_server.algorithm.base_algorithm import BaseAlgoConfig, BaseAlgorithm
from plugrl_server.algorithm.registration import register_algo, register_algo_config
from plugrl_server.common.checkpoint_manager import Checkpoint
from plugrl_server.learning import trees


@register_algo_config("reinforce")
@dataclasses.dataclass
class ReinforceConfig(BaseAlgoConfig):
    """REINFORCE (Williams 1992): raise the probability of what earned more than the critic expected."""

    policies: ClassVar = ("gaussian-policy", "categorical-policy")
    global_steps: int | None = 50_000
    buffer_size: int = 512
    """Frames of one iteration, over all environments."""
    learning_rate: float = 3e-3
    gamma: float = 0.99
    save_interval: int = 10
    """Iterations between checkpoints."""


def rewards_to_go(reward: np.ndarray, previous: np.ndarray, gamma: float) -> np.ndarray:
    """Return what each frame and its successors earned, f4[N]; `previous` is the frame before each, or -1."""
    earned = reward.copy()
    for slot in reversed(range(len(earned))):
        if previous[slot] >= 0:
            earned[previous[slot]] += gamma * earned[slot]
    return earned


@register_algo("reinforce")
class Reinforce(BaseAlgorithm):
    """Fills a buffer with frames of the current policy, takes one step on all of them, and forgets them."""

    def __init__(self, config: ReinforceConfig, policy: Any):
        super().__init__(config=config, policy=policy)
        row = {
            "observed": policy.observe(policy.fake_obs(1)),
            "sample": self.example_train_state(1),
            "reward": np.zeros(1, np.float32),
            "previous": np.zeros(1, np.int64),
        }
        self.frames = trees.alloc_like(row, config.buffer_size)
        self.count = self.iteration = self.saved_iteration = 0

    def init_optimizers(self) -> None:
        self.optimizer = torch.optim.Adam(self.policy.parameters(), self.config.learning_rate)

    def infer(self, obs):
        return self.policy.get_action_and_runtime_state(obs)

    def derive_train_state(self, runtime_state):
        return runtime_state["sample"]

    def feedback(
        self, *, obs, train_state, terminated, truncated, reward, info, next_terminated, next_truncated, prev_node, **_
    ):
        slot, key = self.count, str(self.iteration)
        goes_on = prev_node[1] == key and not (terminated or truncated)  # else another episode, or a learn step between
        row = {
            "observed": self.policy.observe(obs),
            "sample": train_state,
            "reward": reward,
            "previous": prev_node[0] if goes_on else -1,
        }
        trees.put(self.frames, slot, trees.map_leaves(lambda leaf: leaf if np.isscalar(leaf) else leaf[0], row))
        self.record_finished_episode(info, next_terminated, next_truncated)
        self.count += 1
        return (slot, key), self.global_step + 1, {}

    def learn_impl(self):
        frames, device = trees.take(self.frames, slice(self.count)), self.policy.device
        earned = torch.from_numpy(rewards_to_go(frames["reward"], frames["previous"], self.config.gamma)).to(device)
        sample = torch.from_numpy(frames["sample"]).to(device)
        log_prob, _, value = self.policy.evaluate(self.policy.features(frames["observed"]), sample)
        advantage = earned - value.detach()
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        policy_loss, value_loss = -(advantage * log_prob).mean(), (value - earned).square().mean()
        self.optimizer.zero_grad()
        (policy_loss + 0.5 * value_loss).backward()
        self.optimizer.step()
        self.policy.update_normalizer(frames["observed"])
        self.count = 0  # or should_learn() would stay true, and the server would never infer again
        self.iteration += 1
        return self.global_step, {"losses/policy_loss": policy_loss.item(), "losses/value_loss": value_loss.item()}

    def should_learn(self):
        return self.count >= self.config.buffer_size

    def should_save(self):
        return self.iteration - self.saved_iteration >= self.config.save_interval

    def should_stop(self):
        steps = self.config.global_steps
        return steps is not None and self.global_step >= steps and not self.should_learn()

    def create_checkpoint(self):
        self.saved_iteration = self.iteration  # or should_save() would stay true: a checkpoint on every turn
        meta = {
            "iteration": self.iteration,
            "saved_iteration": self.saved_iteration,
            "frames": trees.take(self.frames, slice(self.count)),
            "rng": self.policy.rng_state(),
        }
        return Checkpoint(self.global_step, self.policy.state_dict(), self.optimizer.state_dict(), meta)

    def load_checkpoint(self, checkpoint):
        meta = checkpoint.meta
        self.policy.load_state_dict(checkpoint.model)
        self.optimizer.load_state_dict(checkpoint.optimizer)
        self.policy.load_rng_state(meta["rng"])
        self.global_step, self.iteration = checkpoint.step, meta["iteration"]
        self.saved_iteration, self.count = meta["saved_iteration"], trees.leading(meta["frames"])
        trees.put(self.frames, slice(self.count), meta["frames"])
