"""The same point as a plain Gymnasium environment: no line of it knows PlugRL."""

import gymnasium
import numpy as np
from gymnasium import spaces


class Goto(gymnasium.Env):
    """One point on a square of side 2."""

    action_space = spaces.Box(-1, 1, (2,), np.float32)
    observation_space = spaces.Dict(
        {"at": spaces.Box(-np.inf, np.inf, (2,), np.float64), "to_goal": spaces.Box(-np.inf, np.inf, (2,), np.float64)}
    )

    def __init__(self, speed=0.1):
        self.speed = speed

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed, options=options)
        self.at, self.goal = self.np_random.uniform(-1, 1, (2, 2))
        return self.observe(), {}

    def step(self, action):
        self.at = self.at + self.speed * action
        distance = float(np.linalg.norm(self.goal - self.at))
        reached = distance < 0.1
        return self.observe(), -distance, reached, False, {"success": reached}

    def observe(self):
        return {"at": self.at, "to_goal": self.goal - self.at}


gymnasium.register("Goto-v0", entry_point=Goto, max_episode_steps=40)
