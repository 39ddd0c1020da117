"""What a LeRobot dataset says of its columns: features, and the statistics that policies normalise by."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from plugrl_env_client.recording.episode import Episode, Layout
from plugrl_env_client.recording.formats.picture import coloured

IMAGE_PREFIX = "observation.images."
STATE = "observation.state"
_AXES = ["height", "width", "channels"]
_SAMPLE_LENGTH = 64  # images are thinned to about this many pixels a side for their statistics

Stats = dict[str, np.ndarray]
"""`min`, `max`, `mean`, `std` float64 of a column's shape, `count` int64[1]."""


def image_features(layout: Layout) -> dict[str, str]:
    """The feature of each recorded image."""
    return {name: IMAGE_PREFIX + name.replace("/", ".") for name in layout.images}


def shown_shape(shape: tuple[int, int, int]) -> list[int]:
    """Shape [h, w', 3] of an image as it is kept: always in colour."""
    height, width, channels = shape
    return [height, width if channels == 3 else width * channels, 3]


def columns(episode: Episode) -> dict[str, np.ndarray]:
    """The numbers of each of T frames: an action, what was seen before it, and what came of it."""
    length = len(episode)
    found: dict[str, np.ndarray] = {}
    if episode.states:
        found[STATE] = joined_states(episode)[:length]
    done = episode.terminated | episode.truncated
    return found | {
        "action": episode.actions.reshape(length, -1),
        "next.reward": episode.rewards[:, np.newaxis],
        "next.done": done[:, np.newaxis],
        "next.terminated": episode.terminated[:, np.newaxis],
        "next.truncated": episode.truncated[:, np.newaxis],
    }


def joined_states(episode: Episode) -> np.ndarray:
    """[T+1,d]: all states side by side, in the order of the observation."""
    return np.concatenate(list(episode.states.values()), axis=1)


def features(episode: Episode, video: Mapping[str, Any] | None) -> dict[str, Any]:
    """The `features` of info.json.

    Args:
        episode: any.
        video: what to say of videos; None where images are in the tables.
    """
    layout = episode.layout
    found: dict[str, Any] = {}
    for name, feature in image_features(layout).items():
        found[feature] = {
            "dtype": "image" if video is None else "video",
            "shape": shown_shape(layout.images[name]),
            "names": _AXES,
        }
        if video is not None:
            height, width, _ = found[feature]["shape"]
            found[feature]["info"] = {"video.height": height, "video.width": width, **video}
    for name, column in columns(episode).items():
        found[name] = _column_feature(column.dtype, column.shape[1], _state_names(layout) if name == STATE else None)
    found["timestamp"] = {"dtype": "float32", "shape": [1], "names": None}
    for name in ("frame_index", "episode_index", "index", "task_index"):
        found[name] = {"dtype": "int64", "shape": [1], "names": None}
    return found


def declared_features(layout: Layout) -> dict[str, Any]:
    """What `features` will say of the states, None where there are none, and of the action where it is declared."""
    found: dict[str, Any] = {STATE: None}
    if layout.states:
        dtype = np.result_type(*(dtype for _, dtype in layout.states.values()))
        names = _state_names(layout)
        found[STATE] = _column_feature(dtype, len(names), names)
    space = layout.action_space
    if space is not None:
        found["action"] = _column_feature(space.dtype, math.prod(space.shape), None)
    return found


def _column_feature(dtype: "np.dtype[Any]", width: int, names: list[str] | None) -> dict[str, Any]:
    return {"dtype": str(dtype), "shape": [width], "names": names}


def _state_names(layout: Layout) -> list[str]:
    return [f"{name}.{i}" for name, (width, _) in layout.states.items() for i in range(width)]


def column_stats(column: np.ndarray) -> Stats:
    """Statistics of a column [T,d]."""
    values = column.astype(np.float64)
    return {
        "min": values.min(axis=0),
        "max": values.max(axis=0),
        "mean": values.mean(axis=0),
        "std": values.std(axis=0),
        "count": np.array([len(values)]),
    }


@dataclasses.dataclass
class ImageStats:
    """Running statistics of images, per channel, of a thinned grid of their pixels, scaled to 0..1."""

    frames: int = 0
    pixels: int = 0
    low: np.ndarray = dataclasses.field(default_factory=lambda: np.full(3, 255.0))
    high: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(3))
    total: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(3))
    squares: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(3))

    def add(self, image: np.ndarray) -> None:
        """Take one image in, uint8[h,w,c]."""
        shown = coloured(image)
        step = max(min(shown.shape[:2]) // _SAMPLE_LENGTH, 1)
        values = shown[::step, ::step].reshape(-1, 3).astype(np.float64)
        self.frames += 1
        self.pixels += len(values)
        self.low = np.minimum(self.low, values.min(axis=0))
        self.high = np.maximum(self.high, values.max(axis=0))
        self.total += values.sum(axis=0)
        self.squares += np.square(values).sum(axis=0)

    def stats(self) -> Stats:
        """In the shape (3, 1, 1) that LeRobot gives them."""
        mean = self.total / self.pixels
        variance = np.maximum(self.squares / self.pixels - np.square(mean), 0.0)
        found = {"min": self.low, "max": self.high, "mean": mean, "std": np.sqrt(variance)}
        shaped = {name: values.reshape(3, 1, 1) / 255 for name, values in found.items()}
        return {**shaped, "count": np.array([self.frames])}


def together(parts: Sequence[Stats]) -> Stats:
    """The statistics of several episodes in one (Chan et al. 1979)."""
    counts = np.array([float(part["count"][0]) for part in parts])
    weights = counts / counts.sum()
    mean = sum(weight * part["mean"] for weight, part in zip(weights, parts, strict=True))
    variance = sum(
        weight * (np.square(part["std"]) + np.square(part["mean"] - mean))
        for weight, part in zip(weights, parts, strict=True)
    )
    return {
        "min": np.min([part["min"] for part in parts], axis=0),
        "max": np.max([part["max"] for part in parts], axis=0),
        "mean": np.asarray(mean),
        "std": np.sqrt(variance),
        "count": np.array([int(counts.sum())]),
    }
