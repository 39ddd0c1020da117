"""How a Gymnasium observation space becomes entries of the wire's observation (SPEC 5.2).

- A Box of uint8 with two or three dimensions is an image. Height, width and channels are sent in this order: a
  channels-first image (first axis 1 to 4, last axis more) is transposed, a two-dimensional one gets a channel axis.
- A Box of uint8 with four dimensions is a stack of images: one image, whose channels stand side by side, first image
  first.
- Every other Box is a state, flattened.
- Discrete, MultiDiscrete and MultiBinary are states: one-hot, one-hot side by side, and zeros and ones.
- Text is the observation's `text`; a space has at most one.
- Dict: each entry by its own rule under its key, nested keys joined by a dot.
- Tuple: one flat state when it holds neither images nor text (all entries side by side, `gymnasium.spaces.flatten`),
  otherwise each entry by its own rule under its position.
- Sequence, Graph and OneOf have no fixed size: refused.

An entry that is the whole space is called `obs` (state) or `image`. `--env.state-keys` and `--env.image-keys` choose
among the entries and order them; an image that is named as a state is flattened. All states are sent as float64.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from plugrl_env_client.envs.base_env import EnvError

_MOST_CHANNELS = 4
_Path = tuple[Any, ...]


@dataclasses.dataclass(frozen=True)
class Entry:
    """One entry of an observation: where it is in the env's observation, and how it is laid out on the wire.

    Attributes:
        name: its name on the wire.
        path: keys and positions that lead from the whole observation to this entry.
        space: the entry's own space.
        kind: "states", "images" or "text".
        shape: of one env's row on the wire: (d,), (h, w, c), or () for text.
        view: rows of the wire -> a view of them in the env's own layout, so that writing is one copy.
        encode: one env's value -> its row, where that is no matter of layout.
    """

    name: str
    path: _Path
    space: "spaces.Space[Any]"
    kind: str
    shape: tuple[int, ...]
    view: Callable[[np.ndarray], np.ndarray] | None = None
    encode: Callable[[Any], Any] | None = None

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


def entries(
    space: "spaces.Space[Any]", *, state_keys: Sequence[str] | None = None, image_keys: Sequence[str] | None = None
) -> list[Entry]:
    """The entries to send of an observation space, in order.

    Args:
        space: of one env.
        state_keys: names of the states to send; None: all.
        image_keys: names of the images to send; None: all that `state_keys` does not name.

    Raises:
        EnvError: the space cannot be sent, or has no such entries; the text names those that it has.
    """
    found = list(_entries(space, ()))
    names = [entry.name for entry in found]
    for name in names:
        if names.count(name) > 1:
            raise EnvError(f"the observation holds two entries that would both be called {name}: wrap the env")
    texts = [entry for entry in found if entry.kind == "text"]
    if len(texts) > 1:
        listed = ", ".join(entry.name for entry in texts)
        raise EnvError(f"the observation holds {len(texts)} texts ({listed}); the protocol sends one")
    images = _of_kind("images", image_keys, found)
    states = [_as_state(entry) for entry in _of_kind("states", state_keys, found)]
    moved = {entry.name for entry in states}
    if image_keys is None:
        images = [entry for entry in images if entry.name not in moved]
    for entry in images:
        if entry.name in moved:
            raise EnvError(f"--env.image-keys {entry.name}: --env.state-keys names it too")
    chosen = [*states, *images, *texts]
    if not chosen:
        raise EnvError(f"--env.state-keys and --env.image-keys leave nothing to send: {_listing(found)}")
    return chosen


def _of_kind(kind: str, keys: Sequence[str] | None, found: Sequence[Entry]) -> list[Entry]:
    if keys is None:
        return [entry for entry in found if entry.kind == kind]
    flag = f"--env.{kind[:-1]}-keys"
    named = {entry.name: entry for entry in found}
    for at, key in enumerate(keys):
        if key not in named:
            raise EnvError(f"{flag} {key}: the env has no such entry; it has {_listing(found)}")
        if named[key].kind == "text":
            raise EnvError(f"{flag} {key}: that is the text, which is always sent; the env has {_listing(found)}")
        if kind == "images" and named[key].kind == "states":
            raise EnvError(
                f"{flag} {key}: {named[key].space} is a state; an image is a Box of uint8 with two to four dimensions"
            )
        if key in keys[:at]:
            raise EnvError(f"{flag} {key}: named twice")
    return [named[key] for key in keys]


def _listing(found: Sequence[Entry]) -> str:
    kinds = {kind: [entry.name for entry in found if entry.kind == kind] for kind in ("states", "images", "text")}
    return "; ".join(f"{kind}: {', '.join(names)}" for kind, names in kinds.items() if names)


def _entries(space: "spaces.Space[Any]", path: _Path) -> Iterator[Entry]:
    if isinstance(space, spaces.Dict):
        for key, inner in space.spaces.items():
            yield from _entries(inner, (*path, key))
    elif isinstance(space, spaces.Tuple) and not _is_flat(space):
        for position, inner in enumerate(space.spaces):
            yield from _entries(inner, (*path, position))
    else:
        yield _entry(space, path)


def _entry(space: "spaces.Space[Any]", path: _Path) -> Entry:
    if isinstance(space, spaces.Box) and _is_image(space):
        return _image(space, path)
    name = ".".join(str(part) for part in path)
    if isinstance(space, (spaces.Box, spaces.MultiBinary)):
        return _flat_state(name or "obs", space, path)
    if isinstance(space, spaces.Text):
        return Entry(name or "text", path, space, "text", (), encode=str)
    if isinstance(space, (spaces.Discrete, spaces.MultiDiscrete, spaces.Tuple)):
        encode = functools.partial(spaces.flatten, space)
        return Entry(name or "obs", path, space, "states", (spaces.flatdim(space),), encode=encode)
    raise EnvError(
        f"cannot send {name or 'the whole observation'}: a {type(space).__name__} space has no fixed size. "
        "Wrap the env so that it observes Box, Discrete, MultiDiscrete, MultiBinary, Text, Dict or Tuple spaces"
    )


def _is_image(space: "spaces.Box") -> bool:
    return space.dtype == np.uint8 and len(space.shape) in (2, 3, 4)


def _is_flat(space: "spaces.Tuple[Any]") -> bool:
    """Whether a Tuple holds numbers only, which can stand side by side in one vector."""
    plain = (spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
    return all(
        (isinstance(entry, spaces.Tuple) and _is_flat(entry))
        or (isinstance(entry, spaces.Box) and not _is_image(entry))
        or isinstance(entry, plain)
        for entry in space.spaces
    )


def _image(space: "spaces.Box", path: _Path) -> Entry:
    name = ".".join(str(part) for part in path) or "image"
    *stack, height, width, channels = space.shape if len(space.shape) > 2 else (*space.shape, 1)
    first = len(space.shape) > 2 and height <= _MOST_CHANNELS < channels
    if first:
        height, width, channels = width, channels, height
    depth = stack[0] if stack else 1

    def view(rows: np.ndarray) -> np.ndarray:
        """[n, h, w, depth * c] as [n, (depth,) h, w(, c)], or with channels before h."""
        if len(space.shape) == 2:
            return rows[..., 0]
        stacked = rows.reshape(*rows.shape[:-1], depth, channels)  # [n, h, w, depth, c]
        stacked = np.moveaxis(stacked, -2, 1)
        if first:
            stacked = np.moveaxis(stacked, -1, 2)
        return stacked if stack else stacked[:, 0]

    return Entry(name, path, space, "images", (height, width, depth * channels), view=view)


def _flat_state(name: str, space: "spaces.Space[Any]", path: _Path) -> Entry:
    shape = space.shape or ()

    def view(rows: np.ndarray) -> np.ndarray:
        return rows.reshape(len(rows), *shape)

    return Entry(name, path, space, "states", (int(np.prod(shape)),), view=view)


def _as_state(entry: Entry) -> Entry:
    return _flat_state(entry.name, entry.space, entry.path) if entry.kind == "images" else entry
