"""What looks on while envs run: recorders, viewers and the like (`RolloutObserver`).

A rollout without observers copies nothing for them and calls nothing.
"""

import numpy as np

from plugrl_env_client.envs.base_env import Observation, Step


class RolloutObserver:
    """Told of everything that happens to the n envs of one rollout, in its thread; by default does nothing.

    What is handed over belongs to the env and may be overwritten as soon as a method returns: copy what is kept. An
    exception ends the run.

    Attributes:
        is_waiting: whether it holds the rollout up for something that is not the envs': a disk, say. Any thread may
            ask; a supervisor does not take that for an env that hangs.
    """

    is_waiting: bool = False

    def started(self, first_env: int, num_envs: int) -> None:
        """The rollout begins; `reset` for all envs follows.

        Args:
            first_env: index of row 0 over the whole run.
            num_envs: n.
        """

    def reset(self, indices: np.ndarray, observation: Observation) -> None:
        """An episode has begun in some envs, outside of a step.

        Args:
            indices: int64[k], rows that were reset.
            observation: of all n envs; those rows show the first observation of their episode.
        """

    def stepped(self, actions: np.ndarray, step: Step, resetting: np.ndarray) -> None:
        """All envs have taken one step.

        Args:
            actions: [n, *da], what was applied. A copy of the observer's own.
            step: what came of it, with `truncated` where the rollout itself cut an episode short.
            resetting: int64[k], rows that did not run but began an episode in this step (`BaseEnv.resets_in_step`): of
                `step` only their observation counts, the episode's first one.
        """

    def exchanged(self, waited: float) -> None:
        """A chunk was reported to the server.

        Args:
            waited: seconds waited for actions on this connection until now.
        """

    def closed(self) -> None:
        """The rollout is over, for whatever reason; nothing follows."""
