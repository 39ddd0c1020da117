"""Who needs actions, what each env does next, and who owes a feedback: the client's side of SPEC 4.2-5.4, numpy only.

Every env is in one state:

    WAITING --accept--> RUNNING --record--> OWING --sent--> WAITING         (its chunk ran out)
                                                  --sent--> ENDED           (its episode ended)
                                     ENDED --restarted--> WAITING           (the next episode has begun)

A chunk is run for at most `replan_steps` of its steps; an episode's end cuts it short. The reward of a chunk is the sum
over the steps that were run.

All envs are handled in one numpy call each. Where all are in the same state, which is the common case, not even that is
needed to find out who is; and while all run the same step of one chunk (`_Together`), scalars stand for arrays.
"""

import dataclasses
from typing import NamedTuple

import numpy as np

WAITING, RUNNING, OWING, ENDED = range(4)

_NOBODY = np.zeros(0, np.int64)


class EndedEpisodes(NamedTuple):
    """The episodes that ended in one step.

    Attributes:
        envs: int64[k].
        returns: float64[k].
        lengths: int64[k].
        successes: bool[k]; None: neither the env nor its reward threshold says.
    """

    envs: np.ndarray
    returns: np.ndarray
    lengths: np.ndarray
    successes: np.ndarray | None


class Owed(NamedTuple):
    """What m envs have to report, as it is sent (SPEC 5.4). The arrays may be the plan's own: send them at once.

    Attributes:
        step_ids: int64[m], chunks completed before this one in the episode, on this connection.
        rewards: float32[m], summed over the steps run.
        terminated: bool[m], of the last step.
        truncated: bool[m], of the last step.
        episode: None when no episode ended here; else `r` float32[m] return, `l` int64[m] length, `s` bool[m] success
            and `mask` bool[m], true for an episode that ended and was lived through on one connection.
    """

    step_ids: np.ndarray
    rewards: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    episode: dict[str, np.ndarray] | None


@dataclasses.dataclass(slots=True)
class _Together:
    """A chunk that all envs run in step with each other.

    Attributes:
        chunk: [H, n, *da].
        cursor: steps that were run.
        limit: steps that may be run.
        stood_in: whether other steps were run while it was waited for.
    """

    chunk: np.ndarray
    cursor: int
    limit: int
    stood_in: bool = False


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
        self._states = _States(num_envs)
        self._everyone = self._states.everyone
        self._once_each = np.ones(num_envs, np.int64)  # NumPy adds an array in half the time that a number takes
        self._action_shape: tuple[int, ...] | None = None
        self._together: _Together | None = None  # stands for the next three as long as it is there
        self._stands_in = False  # steps are run that no chunk contains, while one is waited for
        self._actions = np.zeros((0, num_envs))
        self._cursor = np.zeros(num_envs, np.int64)  # steps of the chunk that were run
        self._limit = np.ones(num_envs, np.int64)  # steps of the chunk that may be run
        self._reward = np.zeros(num_envs)
        self._begins = False  # all have accepted a chunk and run none of it: the next rewards are its first
        self._terminated = np.zeros(num_envs, np.bool_)
        self._truncated = np.zeros(num_envs, np.bool_)
        self._any_done = False  # where it is False, no flag is set
        self._success = np.zeros(num_envs, np.bool_)
        self._step_ids = np.zeros(num_envs, np.int64)
        self._return = np.zeros(num_envs)
        self._length = np.zeros(num_envs, np.int64)
        self._whole = np.ones(num_envs, np.bool_)  # the episode has not lived through a reconnect

    def waiting(self) -> np.ndarray:
        """int64[k]: the envs that need actions."""
        return self._states.which(WAITING)

    def owing(self) -> np.ndarray:
        """int64[m]: the envs that owe a feedback."""
        return self._states.which(OWING)

    def ended(self) -> np.ndarray:
        """int64[k]: the envs whose episode ended and was reported, and which must be reset."""
        return self._states.which(ENDED)

    def step_ids(self, indices: np.ndarray) -> np.ndarray:
        """int64[k]: chunks completed in the current episode on this connection."""
        return self._step_ids if indices is self._everyone else self._step_ids[indices]

    def accept(self, indices: np.ndarray, chunk: np.ndarray, late: int = 0) -> None:
        """Give waiting envs their actions.

        Args:
            indices: int64[k], in the order of the chunk's rows.
            chunk: [H, k, *da].
            late: run so many steps less than usual, but at least one.

        Raises:
            ValueError: da differs from that of the chunks before.
        """
        limit = len(chunk) if self._replan_steps is None else min(len(chunk), self._replan_steps)
        if late:
            limit = max(limit - late, 1)
        if chunk.shape[2:] != self._action_shape:
            self._check(chunk)
        if self._stands_in:
            self._relieve(chunk, limit)
            return
        if indices is self._everyone:
            self._together = _Together(chunk, 0, limit)
            self._begins = True
        else:
            self._part()
            self._keep(chunk, indices, 0, limit)
            self._reward[indices] = 0.0
        self._states.put(indices, RUNNING)

    def stand_in(self) -> None:
        """All envs wait for actions, and will run others meanwhile.

        What `record` takes in from here on counts as steps of the chunk to come: into its reward, and into the episode.
        Where the episode ends before the chunk is there, nothing is run of it.
        """
        if not self._stands_in:
            self._stands_in = True
            self._reward.fill(0.0)
            self._states.put(self._everyone, RUNNING)

    def next_actions(self) -> np.ndarray:
        """[n, *da]: the action of each env for the next step, a copy.

        An env that is not running (one that resets itself during the step) gets an action it has had before.
        """
        together = self._together
        if together is not None:
            actions: np.ndarray = together.chunk[min(together.cursor, together.limit - 1)].copy()
        else:
            actions = self._actions[np.minimum(self._cursor, self._limit - 1), self._everyone]
        return actions

    def record(
        self, rewards: np.ndarray, terminated: np.ndarray, truncated: np.ndarray, success: np.ndarray | None = None
    ) -> EndedEpisodes | None:
        """Take in what one step of all envs returned; envs that are not running have reset themselves in it.

        Args:
            rewards: float[n].
            terminated: bool[n].
            truncated: bool[n].
            success: bool[n], read where an episode ended; None: the env does not say.

        Returns:
            The episodes that ended in this step; None where none has.
        """
        running: np.ndarray | bool = True
        rewards = np.asarray(rewards).astype(np.float64)  # once for both sums
        if self._states.common != RUNNING:
            self._part()
            running = self._states.are(RUNNING)
            rewards = np.where(running, rewards, 0.0)
            terminated = np.where(running, terminated, self._terminated)
            truncated = np.where(running, truncated, self._truncated)
        self._length += self._once_each if running is True else running
        self._return += rewards
        if self._begins:
            self._reward, self._begins = rewards, False
        else:
            self._reward += rewards
        if self._max_episode_steps is not None:
            truncated = truncated | ((self._length >= self._max_episode_steps) & ~terminated)
        any_done = bool((terminated.tobytes() + truncated.tobytes()).strip(b"\0"))  # quicker than to count them
        if any_done or self._any_done:
            self._terminated[:], self._truncated[:], self._any_done = terminated, truncated, any_done
        done = (self._terminated | self._truncated) & running if any_done else None
        self._advance(running, done)
        if done is None or not np.count_nonzero(done):
            return None
        np.copyto(self._success, self._judge(success), where=done)
        envs = done.nonzero()[0]
        judged = success is not None or self._reward_threshold is not None
        return EndedEpisodes(envs, self._return[envs], self._length[envs], self._success[envs] if judged else None)

    def truncated(self) -> np.ndarray:
        """bool[n]: whose last step was a truncation, by the env or by `max_episode_steps`; a copy."""
        return self._truncated.copy()

    def cut(self) -> None:
        """End every chunk that has run at least one step: a client may run any prefix (SPEC 5.3)."""
        has_run = self._together is not None and self._together.stood_in
        self._part()
        self._states.put_where(self._states.are(RUNNING) & ((self._cursor > 0) | has_run), OWING)

    def owed(self, indices: np.ndarray) -> Owed:
        """What `indices` have to report."""
        rows = (self._step_ids, self._reward, self._terminated, self._truncated)
        if indices is not self._everyone:
            rows = tuple(values[indices] for values in rows)
        step_ids, reward, terminated, truncated = rows
        episode = None
        if self._any_done:
            done = terminated | truncated
            episode = self._episode(indices, done) if np.count_nonzero(done) else None
        return Owed(step_ids, reward.astype(np.float32), terminated, truncated, episode)

    def sent(self, indices: np.ndarray) -> None:
        """The feedback of `indices` is on its way."""
        if indices is self._everyone:
            self._step_ids += self._once_each
        else:
            self._step_ids[indices] += 1
        self._states.put(indices, WAITING)
        if self._any_done:
            done = (self._terminated | self._truncated)[indices]
            if np.count_nonzero(done):
                self._states.put(indices[done], ENDED)

    def restarted(self, indices: np.ndarray) -> None:
        """A new episode has begun in `indices`."""
        for counter in (self._step_ids, self._return, self._length):
            counter[indices] = 0
        self._terminated[indices] = self._truncated[indices] = False
        self._whole[indices] = True
        self._states.put(indices, WAITING)

    def reconnected(self) -> None:
        """Forget everything of the old connection (SPEC 7.6): chunks, rewards, owed feedback and step ids.

        Episodes that were under way are told apart by their mask; envs whose episode had ended still need a reset.
        """
        self._stands_in = self._begins = False
        self._states.put(self._everyone, WAITING)
        self._states.put_where(self._terminated | self._truncated, ENDED)
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

    def _advance(self, running: "np.ndarray | bool", done: np.ndarray | None) -> None:
        """One more step of each chunk was run: those that ran out, or whose episode ended, are owed to the server."""
        if self._stands_in:
            if done is not None:
                self._states.put_where(done, OWING)
            return
        together = self._together
        if together is not None:
            together.cursor += 1
            if together.cursor >= together.limit:
                self._states.common = OWING
            elif done is not None:
                self._part()
                self._states.put_where(done, OWING)
            return
        self._cursor += running
        over = running & (self._cursor >= self._limit)
        self._states.put_where(over if done is None else over | done, OWING)

    def _relieve(self, chunk: np.ndarray, limit: int) -> None:
        """The chunk is there that other steps stood in for: it is run where the episode goes on."""
        self._stands_in = False
        if self._states.common == RUNNING:
            self._together = _Together(chunk, 0, limit, stood_in=True)
        else:
            self._part()
            self._keep(chunk, slice(None), 0, limit)

    def _part(self) -> None:
        """From here on each env has its own place in its chunk."""
        together, self._together = self._together, None
        if together is not None:
            self._keep(together.chunk, slice(None), together.cursor, together.limit)

    def _keep(self, chunk: np.ndarray, rows: "np.ndarray | slice", cursor: int, limit: int) -> None:
        """Note what envs have to run."""
        if len(self._actions) < len(chunk) or self._actions.shape[2:] != chunk.shape[2:]:
            self._grow(chunk)
        self._actions[: len(chunk), rows] = chunk
        self._cursor[rows] = cursor
        self._limit[rows] = limit

    def _check(self, chunk: np.ndarray) -> None:
        """All chunks have actions of one shape."""
        if self._action_shape is not None:
            raise ValueError(
                f"the server sent actions of shape {chunk.shape[2:]} after actions of {self._action_shape}"
            )
        self._action_shape = chunk.shape[2:]

    def _grow(self, chunk: np.ndarray) -> None:
        """Make room for chunks of this length; what other envs still have to run is kept."""
        old = self._actions
        self._actions = np.zeros((len(chunk), len(self._everyone), *chunk.shape[2:]), chunk.dtype)
        if len(old):
            self._actions[: len(old)] = old


class _States:
    """The state of each env.

    Attributes:
        everyone: int64[n], all envs.
        common: the state that all are in; None where they differ, or may.
    """

    def __init__(self, num_envs: int) -> None:
        self.everyone = np.arange(num_envs)
        self._each = np.full(num_envs, WAITING, np.int8)
        self.common: int | None = WAITING

    def are(self, state: int) -> np.ndarray:
        """bool[n]: who is in `state`."""
        who: np.ndarray = self._apart() == state
        return who

    def which(self, state: int) -> np.ndarray:
        """int64[k]: who is in `state`."""
        if self.common is not None:
            return self.everyone if self.common == state else _NOBODY
        return self.are(state).nonzero()[0]

    def put(self, indices: np.ndarray, state: int) -> None:
        """Move some envs to `state`."""
        if indices is self.everyone or len(indices) == len(self._each):
            self.common = state
            return
        self._apart()[indices] = state
        self.common = state if np.count_nonzero(self._each == state) == len(self._each) else None

    def put_where(self, who: np.ndarray, state: int) -> None:
        """Move the envs for which bool[n] `who` is true to `state`."""
        count = np.count_nonzero(who)
        if count == len(self._each):
            self.common = state
        elif count:
            self._apart()[who] = state
            self.common = None

    def _apart(self) -> np.ndarray:
        """int8[n]: the state of each, which is not kept while all are in the same."""
        if self.common is not None:
            self._each.fill(self.common)
        return self._each
