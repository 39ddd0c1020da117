"""Who needs actions, what each env does next, and who owes a feedback: the client's side of SPEC 4.2-5.4, numpy only.

Every env is in one state:

    WAITING --accept--> RUNNING --record--> OWING --sent--> WAITING         (its chunk ran out)
                                                  --sent--> ENDED           (its episode ended)
                                     ENDED --restarted--> WAITING           (the next episode has begun)

A chunk is run for at most `replan_steps` of its steps; an episode's end cuts it short. The reward of a chunk is the sum
over the steps that were run.
"""

import dataclasses

import numpy as np

WAITING, RUNNING, OWING, ENDED = range(4)

_NONE = np.zeros(0)


@dataclasses.dataclass(frozen=True)
class Owed:
    """What m envs have to report, as it is sent (SPEC 5.4).

    Attributes:
        env_indices: int64[m].
        step_ids: int64[m], chunks completed before this one in the episode, on this connection.
        rewards: float32[m], summed over the steps run.
        terminated: bool[m], of the last step.
        truncated: bool[m], of the last step.
        episode: None when no episode ended here; else `r` float32[m] return, `l` int64[m] length, `s` bool[m] success
            and `mask` bool[m], true for an episode that ended and was lived through on one connection.
    """

    env_indices: np.ndarray
    step_ids: np.ndarray
    rewards: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    episode: dict[str, np.ndarray] | None


class ChunkPlan:
    """The chunks, rewards and episodes of n envs.

    Args:
        num_envs: n.
        replan_steps: how many steps of a chunk are run before asking again; None: all of them.
        max_episode_steps: episodes are truncated at this length; None: only where the env says so.
        reward_threshold: an episode that returns this much is a success where the env does not say.
    """

    def __init__(
        self,
        num_envs: int,
        *,
        replan_steps: int | None = None,
        max_episode_steps: int | None = None,
        reward_threshold: float | None = None,
    ) -> None:
        self._replan_steps = replan_steps
        self._max_episode_steps = max_episode_steps
        self._reward_threshold = reward_threshold
        self._rows = np.arange(num_envs)
        self._state = np.full(num_envs, WAITING)
        self._actions = np.zeros((0, num_envs))
        self._cursor = np.zeros(num_envs, np.int64)  # steps of the chunk that were run
        self._limit = np.ones(num_envs, np.int64)  # steps of the chunk that may be run
        self._reward = np.zeros(num_envs)
        self._terminated = np.zeros(num_envs, np.bool_)
        self._truncated = np.zeros(num_envs, np.bool_)
        self._success = np.zeros(num_envs, np.bool_)
        self._step_ids = np.zeros(num_envs, np.int64)
        self._return = np.zeros(num_envs)
        self._length = np.zeros(num_envs, np.int64)
        self._whole = np.ones(num_envs, np.bool_)  # the episode has not lived through a reconnect

    def waiting(self) -> np.ndarray:
        """int64[k]: the envs that need actions."""
        return np.flatnonzero(self._state == WAITING)

    def owing(self) -> np.ndarray:
        """int64[m]: the envs that owe a feedback."""
        return np.flatnonzero(self._state == OWING)

    def ended(self) -> np.ndarray:
        """int64[k]: the envs whose episode ended and was reported, and which must be reset."""
        return np.flatnonzero(self._state == ENDED)

    def step_ids(self, indices: np.ndarray) -> np.ndarray:
        """int64[k]: chunks completed in the current episode on this connection."""
        step_ids: np.ndarray = self._step_ids[indices]
        return step_ids

    def accept(self, indices: np.ndarray, chunk: np.ndarray) -> None:
        """Give waiting envs their actions.

        Args:
            indices: int64[k], in the order of the chunk's rows.
            chunk: [H, k, *da].

        Raises:
            ValueError: da differs from that of the chunks before.
        """
        horizon = chunk.shape[0]
        if len(self._actions) < horizon or self._actions.shape[2:] != chunk.shape[2:]:
            self._grow(chunk)
        self._actions[:horizon, indices] = chunk
        self._cursor[indices] = 0
        self._reward[indices] = 0.0
        self._state[indices] = RUNNING
        self._limit[indices] = min(horizon, self._replan_steps or horizon)

    def next_actions(self) -> np.ndarray:
        """[n, *da]: the action of each env for the next step, a copy.

        An env that is not running (one that resets itself during the step) gets an action it has had before.
        """
        actions: np.ndarray = self._actions[np.minimum(self._cursor, self._limit - 1), self._rows]
        return actions

    def record(
        self, rewards: np.ndarray, terminated: np.ndarray, truncated: np.ndarray, success: np.ndarray | None = None
    ) -> np.ndarray:
        """Take in what one step of all envs returned; envs that are not running have reset themselves in it.

        Args:
            rewards: float[n].
            terminated: bool[n].
            truncated: bool[n].
            success: bool[n], read where an episode ended; None: the env does not say.

        Returns:
            float64[k], the returns of the episodes that ended in this step.
        """
        running = self._state == RUNNING
        self._cursor += running
        self._length += running
        self._reward += np.where(running, rewards, 0.0)
        self._return += np.where(running, rewards, 0.0)
        if self._max_episode_steps is not None:
            truncated = truncated | ((self._length >= self._max_episode_steps) & ~terminated)
        done = (terminated | truncated) & running
        np.copyto(self._terminated, terminated, where=running)
        np.copyto(self._truncated, truncated, where=running)
        self._state[running & (done | (self._cursor >= self._limit))] = OWING
        if not done.any():
            return _NONE
        np.copyto(self._success, self._judge(success), where=done)
        returns: np.ndarray = self._return[done]
        return returns

    def cut(self) -> None:
        """End every chunk that has run at least one step: a client may run any prefix (SPEC 5.3)."""
        self._state[(self._state == RUNNING) & (self._cursor > 0)] = OWING

    def owed(self, indices: np.ndarray) -> Owed:
        """What `indices` have to report."""
        terminated, truncated = self._terminated[indices], self._truncated[indices]
        done = terminated | truncated
        return Owed(
            env_indices=indices,
            step_ids=self._step_ids[indices],
            rewards=self._reward[indices].astype(np.float32),
            terminated=terminated,
            truncated=truncated,
            episode=self._episode(indices, done) if done.any() else None,
        )

    def sent(self, indices: np.ndarray) -> None:
        """The feedback of `indices` is on its way."""
        done = self._terminated[indices] | self._truncated[indices]
        self._step_ids[indices] += 1
        self._state[indices] = np.where(done, ENDED, WAITING)

    def restarted(self, indices: np.ndarray) -> None:
        """A new episode has begun in `indices`."""
        for counter in (self._step_ids, self._return, self._length):
            counter[indices] = 0
        self._terminated[indices] = self._truncated[indices] = False
        self._whole[indices] = True
        self._state[indices] = WAITING

    def reconnected(self) -> None:
        """Forget everything of the old connection (SPEC 7.6): chunks, rewards, owed feedback and step ids.

        Episodes that were under way are told apart by their mask; envs whose episode had ended still need a reset.
        """
        self._state[:] = np.where(self._terminated | self._truncated, ENDED, WAITING)
        self._whole &= self._length == 0
        self._step_ids[:] = 0

    def _episode(self, indices: np.ndarray, done: np.ndarray) -> dict[str, np.ndarray]:
        return {
            "r": self._return[indices].astype(np.float32),
            "l": self._length[indices],
            "s": self._success[indices] & done,
            "mask": done & self._whole[indices],
        }

    def _judge(self, success: np.ndarray | None) -> np.ndarray:
        if success is not None:
            return success
        if self._reward_threshold is None:
            return np.zeros_like(self._success)
        return self._return >= self._reward_threshold

    def _grow(self, chunk: np.ndarray) -> None:
        """Make room for chunks of this shape; what other envs still have to run is kept."""
        old = self._actions
        if len(old) and old.shape[2:] != chunk.shape[2:]:
            raise ValueError(f"the server sent actions of shape {chunk.shape[2:]} after actions of {old.shape[2:]}")
        self._actions = np.zeros((chunk.shape[0], len(self._rows), *chunk.shape[2:]), chunk.dtype)
        if len(old):
            self._actions[: len(old)] = old
