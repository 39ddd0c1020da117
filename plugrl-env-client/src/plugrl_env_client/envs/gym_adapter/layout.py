"""How a Gymnasium observation space becomes the observation of the wire (SPEC 5.2).

- A Box of uint8 with two or three dimensions is an image. Height, width and channels are sent in this order: a
  channels-first image (first axis 1, 3 or 4, last axis something else) is transposed, a two-dimensional one gets a
  channel axis.
- Every other Box is a state, flattened.
- Discrete, MultiDiscrete and MultiBinary are states: one-hot, one-hot side by side, and zeros and ones.
- Text is the observation's `text`; a space has at most one.
- Dict: each entry by its own rule under its key, nested keys joined by a dot.
- Tuple: one flat state when it holds neither images nor text (all entries side by side, `gymnasium.spaces.flatten`),
  otherwise each entry by its own rule under its position.
- Sequence, Graph and OneOf have no fixed size: refused.

An entry that is the whole space is called `obs` (state) or `image`. All states are sent as float64.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import batch_space, iterate

from plugrl_env_client.envs.base_env import EnvError, Observation

_CHANNELS = (1, 3, 4)
_Path = tuple[Any, ...]


@dataclasses.dataclass(frozen=True)
class Leaf:
    """One entry of an observation: where it is in the env's observation, and how it is laid out on the wire.

    Attributes:
        path: keys and positions that lead from the whole observation to this entry.
        space: the entry's own space.
        kind: "states", "images" or "text".
        shape: of one env's row: (d,), (h, w, c), or () for text.
        convert: one env's value -> what is assigned to that row.
    """

    path: _Path
    space: "spaces.Space[Any]"
    kind: str
    shape: tuple[int, ...]
    convert: Callable[[Any], Any]

    @property
    def name(self) -> str:
        """The entry's name on the wire."""
        if not self.path:
            return "image" if self.kind == "images" else "obs"
        return ".".join(str(part) for part in self.path)

    def of(self, value: Any) -> Any:
        """This entry of a whole observation (of one env, or batched)."""
        for part in self.path:
            value = value[part]
        return value

    def allocate(self, num_envs: int) -> Any:
        """Rows for `num_envs` envs: an array, or a list for text."""
        if self.kind == "text":
            return [""] * num_envs
        return np.zeros((num_envs, *self.shape), np.uint8 if self.kind == "images" else np.float64)


class Layout:
    """Buffers for the observations of n envs, filled in place.

    Args:
        space: the observation space of one env.
        num_envs: n.

    Raises:
        EnvError: the space cannot be sent.
    """

    def __init__(self, space: "spaces.Space[Any]", num_envs: int) -> None:
        self._leaves = list(_leaves(space, ()))
        texts = [leaf.name for leaf in self._leaves if leaf.kind == "text"]
        if len(texts) > 1:
            raise EnvError(f"the observation holds {len(texts)} texts ({', '.join(texts)}); the protocol sends one")
        self._has_text = bool(texts)
        self._num_envs = num_envs
        self._batched = [batch_space(leaf.space, num_envs) for leaf in self._leaves]
        self._rows = [leaf.allocate(num_envs) for leaf in self._leaves]
        self._observation = self._build()
        # The common case, one flat vector, is written without a walk over leaves.
        flat = len(self._leaves) == 1 and isinstance(space, spaces.Box) and len(space.shape) == 1
        self._vector = self._rows[0] if flat and self._leaves[0].kind == "states" else None

    @property
    def observation(self) -> Observation:
        """The observations of all n envs as last written: views on the buffers."""
        return self._build() if self._has_text else self._observation

    def write(self, row: int, value: Any) -> None:
        """Set env `row`'s observation from what that env returned."""
        if self._vector is not None:
            self._vector[row] = value
            return
        for leaf, rows in zip(self._leaves, self._rows, strict=True):
            rows[row] = leaf.convert(leaf.of(value))

    def write_batch(self, batch: Any) -> None:
        """Set all n observations from what a Gymnasium vector env returned."""
        if self._vector is not None:
            self._vector[...] = batch
            return
        for leaf, rows, batched in zip(self._leaves, self._rows, self._batched, strict=True):
            values = leaf.of(batch)
            split = values if leaf.kind == "text" else iterate(batched, values)
            for row, value in enumerate(split):
                rows[row] = leaf.convert(value)

    def snapshot(self) -> list[Any]:
        """A copy of all rows as last written, for `restore`."""
        return [rows.copy() for rows in self._rows]

    def restore(self, indices: np.ndarray, snapshot: list[Any]) -> None:
        """Put the given rows back to what they were at the snapshot."""
        for rows, saved in zip(self._rows, snapshot, strict=True):
            for row in indices:
                rows[row] = saved[row]

    def _build(self) -> Observation:
        named: dict[str, dict[str, Any]] = {"images": {}, "states": {}, "text": {}}
        for leaf, rows in zip(self._leaves, self._rows, strict=True):
            named[leaf.kind][leaf.name] = rows
        text = next(iter(named["text"].values()), [""] * self._num_envs)
        return Observation(images=named["images"], states=named["states"], text=np.array(text, dtype=np.str_))


def _leaves(space: "spaces.Space[Any]", path: _Path) -> Iterator[Leaf]:
    if isinstance(space, spaces.Dict):
        for key, entry in space.spaces.items():
            yield from _leaves(entry, (*path, key))
    elif isinstance(space, spaces.Tuple) and not _is_flat(space):
        for position, entry in enumerate(space.spaces):
            yield from _leaves(entry, (*path, position))
    else:
        yield _leaf(space, path)


def _leaf(space: "spaces.Space[Any]", path: _Path) -> Leaf:
    if isinstance(space, spaces.Box):
        return _image(space, path) if _is_image(space) else _box_state(space, path)
    if isinstance(space, spaces.Text):
        return Leaf(path, space, "text", (), str)
    if isinstance(space, (spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary, spaces.Tuple)):
        width = spaces.flatdim(space)
        return Leaf(path, space, "states", (width,), functools.partial(spaces.flatten, space))
    where = ".".join(str(part) for part in path) or "the whole observation"
    raise EnvError(
        f"cannot send {where}: a {type(space).__name__} space has no fixed size. "
        "Wrap the env so that it observes Box, Discrete, MultiDiscrete, MultiBinary, Text, Dict or Tuple spaces"
    )


def _is_image(space: "spaces.Box") -> bool:
    return space.dtype == np.uint8 and len(space.shape) in (2, 3)


def _is_flat(space: "spaces.Tuple[Any]") -> bool:
    """Whether a Tuple holds numbers only, which can stand side by side in one vector."""
    plain = (spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
    return all(
        (isinstance(entry, spaces.Tuple) and _is_flat(entry))
        or (isinstance(entry, spaces.Box) and not _is_image(entry))
        or isinstance(entry, plain)
        for entry in space.spaces
    )


def _image(space: "spaces.Box", path: _Path) -> Leaf:
    if len(space.shape) == 2:
        return Leaf(path, space, "images", (*space.shape, 1), lambda image: image[..., None])
    first, second, last = space.shape
    if first in _CHANNELS and last not in _CHANNELS:
        return Leaf(path, space, "images", (second, last, first), lambda image: np.moveaxis(image, 0, -1))
    return Leaf(path, space, "images", space.shape, np.asarray)


def _box_state(space: "spaces.Box", path: _Path) -> Leaf:
    return Leaf(path, space, "states", (int(np.prod(space.shape)),), np.ravel)
