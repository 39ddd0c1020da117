"""What there is to see: the newest observation of each env, its returns, and how fast everything goes."""

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from plugrl_env_client.envs.base_env import Observation, Step
from plugrl_env_client.observers import RolloutObserver
from plugrl_env_client.recording.formats.picture import picture, png

FRAME_SECONDS = 0.2  # between two copies of what envs see, while somebody looks
IDLE_SECONDS = 2.0  # and while nobody does
LOOK_SECONDS = 2.0  # how long somebody who has looked counts as looking
LONGEST_SIDE = 480  # of a picture; larger ones are shown smaller
STATE_WIDTH = 32  # numbers of a state that are shown

_RATE_SECONDS = 0.5  # between two samples for the rates
_RATE_SAMPLES = 10
_RECENT_EPISODES = 100


class Scene:
    """All envs of a process. Groups write to it in their threads, and anyone may look.

    Args:
        title: what is being run.
        now: the time in seconds, on a clock that does not go back.
    """

    def __init__(self, title: str, now: Callable[[], float] = time.monotonic) -> None:
        self._title = title
        self._now = now
        self._looked = -float("inf")
        self._groups: list[GroupScene] = []
        self._joining = threading.Lock()
        self._pictures: dict[tuple[int, str], tuple[int, bytes]] = {}

    @property
    def is_watched(self) -> bool:
        """Whether somebody has looked just now."""
        return self._now() - self._looked < LOOK_SECONDS

    def observer(self) -> "GroupScene":
        """The observer of one more group."""
        group = GroupScene(self, self._now)
        with self._joining:
            self._groups.append(group)
        return group

    def describe(self, first: int = 0, count: int = 64) -> dict[str, Any]:
        """Everything but the pictures, as JSON has it.

        Args:
            first: how many envs of this process to leave out.
            count: of how many to tell.
        """
        self._looked = self._now()
        groups = self._started()
        total = sum(group.num_envs for group in groups)
        returns = [value for group in groups for value in tuple(group.recent)]
        rates = [group.rates() for group in groups]
        envs = [(group, row) for group in groups for row in range(group.num_envs)]
        return {
            "title": self._title,
            "num_envs": total,
            "first": first,
            "steps": sum(group.steps for group in groups),
            "steps_per_second": round(sum(rate for rate, _ in rates), 2),
            "waiting": round(sum(waiting for _, waiting in rates) / max(len(rates), 1), 3),
            "episodes": sum(int(group.episodes.sum()) for group in groups),
            "mean_return": _number(sum(returns) / len(returns)) if returns else None,
            "running": any(group.is_running for group in groups),
            "envs": [group.describe(row) for group, row in envs[first : first + count]],
        }

    def picture(self, env: int, name: str) -> bytes | None:
        """A PNG file of what an env sees; None where there is none. It is made once for each copy.

        Args:
            env: by its index over the whole run.
            name: of the image.
        """
        self._looked = self._now()
        for group in self._started():
            if group.first_env <= env < group.first_env + group.num_envs:
                frame, observation = group.shown
                if name not in observation.images:
                    return None
                made = self._pictures.get((env, name))
                if made is None or made[0] != frame:
                    made = (frame, png(picture(observation.images[name][env - group.first_env])))
                    self._pictures[env, name] = made
                return made[1]
        return None

    def _started(self) -> "list[GroupScene]":
        with self._joining:
            groups = [group for group in self._groups if group.shown[0] > 0]
        return sorted(groups, key=lambda group: group.first_env)


class GroupScene(RolloutObserver):
    """The envs of one group; its thread writes, others read.

    Attributes:
        first_env: index of the first one over the whole run.
        num_envs: n.
        steps: env steps.
        episodes: int64[n], finished ones.
        recent: the last returns.
        shown: how many copies were made of what the envs see, and the newest one.
        is_running: whether the rollout is not over.
    """

    def __init__(self, scene: Scene, now: Callable[[], float]) -> None:
        self._scene = scene
        self._now = now
        self.started(0, 0)
        self.is_running = False

    def started(self, first_env: int, num_envs: int) -> None:
        """Make room for n envs."""
        self.first_env, self.num_envs = first_env, num_envs
        self.steps = 0
        self.episodes = np.zeros(num_envs, np.int64)
        self.recent: deque[float] = deque(maxlen=_RECENT_EPISODES)
        self.shown = (0, Observation(images={}, states={}, text=np.full(num_envs, "")))
        self.is_running = True
        self._returns = np.zeros(num_envs)
        self._lengths = np.zeros(num_envs, np.int64)
        self._last_returns = np.zeros(num_envs)
        self._waited = 0.0  # over all connections
        self._waited_here = 0.0  # on this one
        self._samples: deque[tuple[float, int, float]] = deque(maxlen=_RATE_SAMPLES)
        self._copied = -float("inf")

    def reset(self, indices: np.ndarray, observation: Observation) -> None:
        """An episode has begun."""
        self._returns[indices] = 0.0
        self._lengths[indices] = 0
        self._show(observation)

    def stepped(self, actions: np.ndarray, step: Step, resetting: np.ndarray) -> None:
        """Count, and copy what is seen where that is due."""
        del actions
        ran = np.ones(self.num_envs, np.bool_)
        ran[resetting] = False
        self.steps += self.num_envs - len(resetting)
        self._returns = np.where(ran, self._returns + step.rewards, 0.0)
        self._lengths += np.where(ran, 1, -self._lengths)
        done = ran & (step.terminated | step.truncated)
        if np.count_nonzero(done):
            self.episodes += done
            self._last_returns[done] = self._returns[done]
            self.recent.extend(self._returns[done].tolist())
        self._show(step.observation)

    def exchanged(self, waited: float) -> None:
        """Note how long the group has waited; a new connection begins at 0."""
        self._waited += waited - (self._waited_here if waited >= self._waited_here else 0.0)
        self._waited_here = waited

    def closed(self) -> None:
        """What is there stays to be seen."""
        self.is_running = False

    def rates(self) -> tuple[float, float]:
        """Steps a second, and the share of the time spent waiting, over the last few seconds."""
        samples = tuple(self._samples)
        if not samples or not self.is_running:
            return 0.0, 0.0
        then, steps, waited = samples[0]
        seconds = self._now() - then
        if seconds <= 0:
            return 0.0, 0.0
        return (self.steps - steps) / seconds, min((self._waited - waited) / seconds, 1.0)

    def describe(self, row: int) -> dict[str, Any]:
        """One env, as JSON has it."""
        frame, observation = self.shown
        return {
            "env": self.first_env + row,
            "return": _number(self._returns[row]),
            "length": int(self._lengths[row]),
            "episodes": int(self.episodes[row]),
            "last_return": _number(self._last_returns[row]) if self.episodes[row] else None,
            "frame": frame,
            "images": list(observation.images),
            "states": {
                name: {"size": state.shape[1], "values": [_number(value) for value in state[row, :STATE_WIDTH]]}
                for name, state in observation.states.items()
            },
            "text": str(observation.text[row]),
        }

    def _show(self, observation: Observation) -> None:
        now = self._now()
        if not self._samples or now - self._samples[-1][0] >= _RATE_SECONDS:
            self._samples.append((now, self.steps, self._waited))
        if now - self._copied < (FRAME_SECONDS if self._scene.is_watched else IDLE_SECONDS):
            return
        self._copied = now
        images = {name: _small(image) for name, image in observation.images.items()}
        states = {name: state.copy() for name, state in observation.states.items()}
        self.shown = (self.shown[0] + 1, Observation(images=images, states=states, text=observation.text.copy()))


def _small(images: np.ndarray) -> np.ndarray:
    """uint8[n,h,w,c], a copy with every so-manieth pixel of a large one."""
    every = -(-max(images.shape[1:3]) // LONGEST_SIDE) or 1
    return np.ascontiguousarray(images[:, ::every, ::every]) if every > 1 else images.copy()


def _number(value: Any) -> float | str:
    """A number of JSON, which knows neither NaN nor infinity."""
    number = float(value)
    return round(number, 6) if np.isfinite(number) else str(number)
