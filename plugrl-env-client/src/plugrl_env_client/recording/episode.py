"""Episodes as they are recorded: what an env shows, the rows that are copied from it, and the whole of an episode."""

import dataclasses
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
from plugrl_protocol.observation import Observation
from plugrl_protocol.spaces import ActionSpace

from plugrl_env_client.recording.recorder_options import RecordingError

ARRAY_BYTES = 160
"""What a small array takes besides its numbers: its head, and what the allocator adds."""


@dataclasses.dataclass(frozen=True)
class Layout:
    """What every env of a run shows and takes.

    Attributes:
        env_id: name of the env.
        images: shape (h, w, c) of each image that is recorded, uint8.
        states: width and dtype of each state.
        has_text: whether the envs say anything.
        action_space: None where the env takes any action.
        fps: frames per second.
    """

    env_id: str
    images: Mapping[str, tuple[int, int, int]]
    states: Mapping[str, tuple[int, np.dtype[np.generic]]]
    has_text: bool
    action_space: ActionSpace | None
    fps: int

    def check(self, rows: "Rows") -> None:
        """See whether there is room for everything that is shown.

        Raises:
            RecordingError: there is text, and was none when the recording began.
        """
        if not self.has_text and (rows.text != "").any():
            raise RecordingError(f"{self.env_id} began to give text, which the recording has no room for")

    @classmethod
    def of(
        cls,
        observation: Observation,
        image_keys: Sequence[str],
        *,
        env_id: str,
        action_space: ActionSpace | None,
        fps: int,
    ) -> "Layout":
        """The layout of what an env shows first.

        Args:
            observation: of any number of envs.
            image_keys: the images to record; empty: all.
            env_id: name of the env.
            action_space: its action space.
            fps: frames per second.

        Raises:
            RecordingError: there is no such image.
        """
        for key in image_keys:
            if key not in observation.images:
                known = ", ".join(observation.images) or "none"
                raise RecordingError(f"--recorder.image-keys {key}: {env_id} has no such image; it shows: {known}")
        images = {key: _image_shape(observation.images[key]) for key in image_keys or observation.images}
        states = {key: (state.shape[1], state.dtype) for key, state in observation.states.items()}
        return cls(env_id, images, states, bool((observation.text != "").any()), action_space, fps)


class Rows(NamedTuple):
    """What k envs show, copied out of their buffers.

    Attributes:
        images: uint8[k,h,w,c] by name.
        states: [k,d] by name.
        text: str[k].
    """

    images: dict[str, np.ndarray]
    states: dict[str, np.ndarray]
    text: np.ndarray

    @classmethod
    def copy(cls, observation: Observation, rows: np.ndarray, images: Sequence[str]) -> "Rows":
        """Copy the rows int64[k] with those images."""
        return cls(
            {name: observation.images[name][rows] for name in images},
            {name: state[rows] for name, state in observation.states.items()},
            observation.text[rows],
        )

    @property
    def nbytes(self) -> int:
        """Their size in memory."""
        return sum(array.nbytes + ARRAY_BYTES for array in (*self.images.values(), *self.states.values(), self.text))


@dataclasses.dataclass(frozen=True)
class Episode:
    """A whole episode of T steps. Row t of an observation was seen before action t, row T is the final one.

    Attributes:
        env: index of the env over the whole run.
        number: of the episode, counted for this env from the start of the run.
        seed: what the env was reset with; None where it went on with its own random numbers.
        layout: what the env shows.
        images: uint8[T+1,h,w,c] by name; empty where no format asked for arrays.
        states: [T+1,d] by name.
        text: str[T+1].
        actions: [T,*da], as applied.
        rewards: float64[T].
        terminated: bool[T].
        truncated: bool[T].
        success: what the env said; None where it said nothing.
    """

    env: int
    number: int
    seed: int | None
    layout: Layout
    images: Mapping[str, np.ndarray]
    states: Mapping[str, np.ndarray]
    text: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    success: bool | None

    def __len__(self) -> int:
        return len(self.rewards)

    def facts(self) -> dict[str, int | float | bool | str | None]:
        """What is said of it beside its data."""
        return {
            "env_id": self.layout.env_id,
            "env": self.env,
            "episode": self.number,
            "seed": self.seed,
            "length": len(self),
            "return": float(self.rewards.sum()),
            "terminated": bool(self.terminated[-1]),
            "truncated": bool(self.truncated[-1]),
            "success": self.success,
        }


class EpisodeInTheMaking:
    """Collects an episode. Its images go to files without a name, which are gone when the process is.

    Args:
        env: index of the env over the whole run.
        number: of the episode.
        seed: what the env was reset with.
        layout: what it shows.
        spool: folder for its images; None where nobody wants them as arrays.
    """

    def __init__(self, env: int, number: int, seed: int | None, layout: Layout, spool: Path | None) -> None:
        self.env = env
        self.number = number
        self._seed = seed
        self._layout = layout
        self._spools: dict[str, IO[bytes]] = {}
        if spool is not None:
            self._spools = {name: tempfile.TemporaryFile(dir=spool) for name in layout.images}  # noqa: SIM115
        self._states: dict[str, list[np.ndarray]] = {name: [] for name in layout.states}
        self._text: list[str] = []
        self._length = 0
        self._actions: list[np.ndarray] = []
        self._rewards: list[float] = []
        self._ends: list[tuple[bool, bool]] = []
        self.success: bool | None = None

    def show(self, rows: Rows, row: int) -> dict[str, np.ndarray]:
        """Take in the next observation, row `row` of `rows`; returns its images, [h,w,c] each."""
        for name, states in self._states.items():
            states.append(rows.states[name][row])
        if self._layout.has_text:
            self._text.append(str(rows.text[row]))
        self._length += 1
        images = {name: image[row] for name, image in rows.images.items()}
        for name, spool in self._spools.items():
            spool.write(np.ascontiguousarray(images[name]).data)
        return images

    def step(self, action: np.ndarray, reward: float, terminated: bool, truncated: bool) -> None:
        """Take in one step; its observation follows by `show`."""
        self._actions.append(action)
        self._rewards.append(reward)
        self._ends.append((terminated, truncated))

    def finish(self) -> Episode:
        """The whole of it."""
        ends = np.array(self._ends, np.bool_)
        return Episode(
            env=self.env,
            number=self.number,
            seed=self._seed,
            layout=self._layout,
            images={name: self._mapped(name) for name in self._spools},
            states={name: np.stack(states) for name, states in self._states.items()},
            text=np.array(self._text or [""] * self._length, np.str_),
            actions=np.stack(self._actions),
            rewards=np.array(self._rewards, np.float64),
            terminated=ends[:, 0],
            truncated=ends[:, 1],
            success=self.success,
        )

    def close(self) -> None:
        """Give the files back."""
        for spool in self._spools.values():
            spool.close()

    def _mapped(self, name: str) -> np.ndarray:
        spool = self._spools[name]
        spool.flush()
        shape = (self._length, *self._layout.images[name])
        return np.memmap(spool, np.uint8, mode="r", shape=shape)


def _image_shape(image: np.ndarray) -> tuple[int, int, int]:
    height, width, channels = image.shape[1:]
    return height, width, channels
