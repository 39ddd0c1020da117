"""A learner without mathematics: its weights all say how many updates were taken, and a sum says on which frames."""

import numpy as np
import torch
from plugrl_server.algorithm.concurrent import learner_process
from plugrl_server.learning.replay_buffer import ReplayBuffer


class ToyPolicy(torch.nn.Module):
    """So many weights, all with one value."""

    def __init__(self, size):
        super().__init__()
        self.weights = torch.nn.Parameter(torch.zeros(size), requires_grad=False)
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("none", torch.zeros(0))


class ToyLearner:
    """Draws one frame for each update; a frame of negative reward breaks it, one of reward 1000 ends its process."""

    def __init__(self, size=10, capacity=100, seed=0):
        self.policy = ToyPolicy(size)
        self.replay = ReplayBuffer(capacity)
        self.updates = 0
        self.total = torch.zeros(())
        self.rng = np.random.default_rng(seed)
        self.told = []

    def add(self, **columns):
        return self.replay.add(**columns)

    def update(self, n=1):
        for _ in range(n):
            reward = float(self.replay.sample(1, self.rng).reward[0])
            if reward < 0:
                raise ZeroDivisionError(f"a reward of {reward}")
            if reward == 1000:
                import os

                os._exit(7)
            self.updates += 1
            self.total += reward
            self.policy.weights.fill_(self.updates)
            self.policy.count.fill_(self.updates)
            self.told.append(float(self.updates))

    def metrics(self):
        told, self.told = self.told, []
        return {"losses/mean_update": float(np.mean(told))} if told else {}

    def optimizer_state(self):
        return {"total": self.total}

    def load_optimizer_state(self, state):
        self.total.copy_(state["total"])

    def state_dict(self):
        return {"updates": self.updates, "replay": self.replay.state_dict(), "rng": self.rng.bit_generator.state}

    def load_state_dict(self, state):
        self.replay.load_state_dict(state["replay"])
        self.updates = state["updates"]
        self.rng.bit_generator.state = state["rng"]


def frames(rewards, nodes=None):
    """Frames of as many environments, as keyword arguments of `add`."""
    n = len(rewards)
    rewards = np.array(rewards, np.float32)
    return {
        "obs": rewards[:, None],
        "action": np.zeros((n, 2), np.float32),
        "next_obs": rewards[:, None] + 1,
        "reward": rewards,
        "terminated": np.zeros(n, bool),
        "truncated": np.zeros(n, bool),
        "nodes": [(-1, "")] * n if nodes is None else nodes,
    }


def build_and_publish_always(**sizes):
    """Build a learner in its process, and publish its weights after each update from then on."""
    learner_process.PUBLISH_INTERVAL = 0.0
    return ToyLearner(**sizes)
