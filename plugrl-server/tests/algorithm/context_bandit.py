"""A bandit whose best action is what it shows, or a multiple of that."""

import numpy as np
from plugrl_server.algorithm.base_algorithm import NO_NODE, FeedbackRows


class Bandit:
    """n environments of one-step episodes: the best action is `gain` contexts, the cost the squared distance to it."""

    gain = 1.0

    def __init__(self, n=16, largest=1.0):
        self.n = n
        self.largest = largest
        self.round = 0

    def observation(self):
        # A function of the round alone, so that a resumed run sees the contexts the first one would have seen.
        contexts = self.largest * np.sin(np.arange(self.n) + 0.7 * self.round)[:, None]
        return {"images": {}, "states": {"context": contexts}, "text": np.full(self.n, "")}

    def rows(self, algorithm):
        """One round of infer and feedback, as the server hands it to the algorithm."""
        obs = self.observation()
        action, runtime_state = algorithm.infer(obs)
        train_state = algorithm.derive_train_state(runtime_state)
        reward = -((action[:, 0, 0] - self.gain * obs["states"]["context"][:, 0]) ** 2)
        self.round += 1
        no, yes = np.zeros(self.n, bool), np.ones(self.n, bool)
        return FeedbackRows(
            obs=obs,
            runtime_state=runtime_state,
            train_state=train_state,
            terminated=no if self.round == 1 else yes,
            truncated=no,
            next_obs=self.observation(),
            reward=reward.astype(np.float32),
            info=[{"episode": {"r": value, "l": 1}} for value in reward],
            next_terminated=yes,
            next_truncated=no,
            nodes=[NO_NODE] * self.n,
        )
