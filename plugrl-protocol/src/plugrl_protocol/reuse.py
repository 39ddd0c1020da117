"""reuse-feedback-obs: an observation that went out in a feedback is left out of the next infer (SPEC 10.1).

Server: `HeldObservations` keeps the `obs` row of each env's last feedback and completes infers with them. Client:
`ReusableEnvs` knows for which envs the server does so; `unchanged` tells which of their rows are still the same. Both
ends hold exactly the envs whose last feedback on this connection did not end their episode.
"""

import math
from collections.abc import Sequence
from typing import Any, NoReturn, TypeAlias

import numpy as np

from plugrl_protocol.errors import LocalProtocolError, RemoteProtocolError, show_key
from plugrl_protocol.messages import Feedback, Infer
from plugrl_protocol.observation import Observation

MAX_ENVS = 65_536  # SPEC 4.4: env indices are 0..65,535

Layout: TypeAlias = dict[tuple[str, str], tuple[np.dtype[Any], tuple[int, ...]]]
"""Dtype and row shape of every array, by kind ("images" or "states") and name. Rows of equal layouts can be batched."""

_SMALL_FRAME = 64 * 2**10  # bytes that may be kept alive for less
_MOST_STORED = 2**30  # bytes of a connection's store; what does not fit is forgotten, and has to be sent again
_NOWHERE, _LAST = 0, -1  # where an env's row lies: else it is 1 + its place in the store


class HeldObservations:
    """The server's half: one row for each env, of its last feedback on this connection.

    Most clients ask next about just the envs they reported on, so the rows of the last feedback are held as they are,
    and handed out without a copy. What is left of earlier feedbacks lies in a store.

    Args:
        max_bytes: The largest observation to complete: what did not fit in a frame is not put together here either.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._layout: Layout = {}
        self._row_bytes = 0  # of images and states
        self._where = np.zeros(MAX_ENVS, np.int32)  # by env index, all _NOWHERE; what is not touched takes no memory
        self._last: Observation | None = None
        self._last_envs = np.zeros(0, np.int64)
        self._last_key = b""  # the bytes of _last_envs: the fast comparison
        self._store: _Store | None = None

    def keep(self, feedback: Feedback, frame_bytes: int) -> None:
        """Take the rows of a feedback, in place of what its envs held. An ended episode leaves nothing to reuse.

        Args:
            feedback: The message; its arrays may be views on its frame.
            frame_bytes: The size of that. It is kept alive only if what is held of it is most of it.
        """
        envs, rows = feedback.env_indices, feedback.observation
        layout = _layout(rows)
        if layout != self._layout:
            self._forget(layout)
        ended = feedback.terminated | feedback.truncated
        if np.count_nonzero(ended):
            envs, rows = envs[~ended], _frozen(rows.take(~ended))
        elif frame_bytes > _SMALL_FRAME and 2 * len(rows) * self._row_bytes < frame_bytes:
            envs, rows = envs.copy(), _frozen(rows.take(np.arange(len(rows))))
        key = envs.tobytes()
        if self._last is None or key != self._last_key or len(envs) < len(ended):
            self._release(feedback.env_indices)
            self._put_away()
            self._where[envs] = _LAST
        self._last, self._last_envs, self._last_key = _tight(rows), envs, key

    def complete(self, infer: Infer) -> Infer:
        """The infer as it would have come without `reuse`: every row there, and the text no wider than it must be.

        Raises:
            RemoteProtocolError: A row is not held, does not fit the rows that were sent, or all are too large.
        """
        sent, reuse = _tight(infer.observation), infer.reuse
        reused = 0 if reuse is None else np.count_nonzero(reuse)
        if reuse is None or not reused:
            return infer if reuse is None and sent is infer.observation else _replace(infer, sent)
        envs = infer.env_indices if reused == len(reuse) else infer.env_indices[reuse]
        held = self._take(envs, sent, len(reuse))
        return _replace(infer, _merge(reuse, held, sent, self._max_bytes) if len(sent) else held)

    def _forget(self, layout: Layout) -> None:
        """Begin again with another layout; a client that changes it sends its next observations in full."""
        self._layout = layout
        self._row_bytes = sum(dtype.itemsize * math.prod(shape) for dtype, shape in layout.values())
        self._where = np.zeros(MAX_ENVS, np.int32)
        self._last = self._store = None

    def _release(self, envs: np.ndarray) -> None:
        """Drop what these envs hold."""
        where = self._where[envs]
        if self._store is not None:
            self._store.free(where[where > 0] - 1)
        self._where[envs] = _NOWHERE

    def _put_away(self) -> None:
        """Move to the store what is still held of the last feedback."""
        last, envs, self._last = self._last, self._last_envs, None
        if last is None:
            return
        left = self._where[envs] == _LAST
        if np.count_nonzero(left):
            if self._store is None:
                self._store = _Store(last)
            rows = last.take(left)
            if self._store.nbytes + len(rows) * self._row_bytes + rows.text.nbytes > _MOST_STORED:
                self._where[envs[left]] = _NOWHERE
            else:
                self._where[envs[left]] = 1 + self._store.put(rows)

    def _take(self, envs: np.ndarray, sent: Observation, rows: int) -> Observation:
        """What these envs hold, with the keys in the order of `sent`, to be one of so many rows."""
        last = self._last if envs.tobytes() == self._last_key else None
        if last is None:
            self._check_held(envs)
        layout = _layout(sent)
        if layout != self._layout:
            self._refuse_layout(layout)
        _check_size(rows * self._row_bytes, self._max_bytes)
        if last is None:
            self._put_away()
            self._check_held(envs)  # what did not fit into the store is gone
            assert self._store is not None  # noqa: S101 - envs that are held are in one of the two
            last = self._store.take(self._where[envs] - 1, self._max_bytes)
        return _ordered(last, sent)

    def _check_held(self, envs: np.ndarray) -> None:
        missing = self._where[envs] == _NOWHERE
        if np.count_nonzero(missing):
            raise RemoteProtocolError("10.1 reuse/held", _not_held(envs[missing][0]))

    def _refuse_layout(self, found: Layout) -> NoReturn:
        for kind, name in sorted(found.keys() | self._layout.keys()):
            expected, got = (_describe(layout.get((kind, name))) for layout in (self._layout, found))
            if expected != got:
                break
        detail = f"infer.data.{kind}.{show_key(name)}: expected {expected} as in the feedback, got {got}"
        raise RemoteProtocolError("10.1 reuse/shape", detail)


class ReusableEnvs:
    """The client's half: the envs whose last feedback the server holds."""

    def __init__(self) -> None:
        self._held = np.zeros(MAX_ENVS, np.bool_)  # by env index

    def reported(self, feedback: Feedback) -> None:
        """This feedback has been sent."""
        self._held[feedback.env_indices] = ~(feedback.terminated | feedback.truncated)

    def among(self, env_indices: np.ndarray) -> np.ndarray:
        """b1[n]: which of these envs they are."""
        held: np.ndarray = self._held[env_indices]
        return held

    def check(self, env_indices: np.ndarray, reuse: np.ndarray) -> None:
        """Make sure that the server can complete an infer.

        Args:
            env_indices: int64[n], as in the infer.
            reuse: b1[n], as in the infer.

        Raises:
            LocalProtocolError: It reuses a row that the server does not hold.
        """
        missing = reuse > self._held[env_indices]
        if np.count_nonzero(missing):
            raise LocalProtocolError("10.1 reuse/held", _not_held(env_indices[missing][0]))


def unchanged(before: Observation, after: Observation) -> np.ndarray:
    """Which of n rows are the same in both, bit for bit (so a NaN is itself, and -0.0 is not 0.0): b1[n].

    Rows of different keys, dtypes or widths are not; text is compared as strings, however wide its arrays are.
    """
    if _layout(before) != _layout(after):
        return np.zeros(len(before), np.bool_)
    same: np.ndarray = before.text == after.text
    for name, image in before.images.items():
        same &= (image == after.images[name]).all(axis=(1, 2, 3))
    for name, state in before.states.items():
        same &= (_bits(state) == _bits(after.states[name])).all(axis=1)
    return same


def _replace(infer: Infer, observation: Observation) -> Infer:
    """The infer with all its rows. What was read from the wire is valid and is not looked at again."""
    completed, set_field = object.__new__(Infer), object.__setattr__
    set_field(completed, "observation", observation)
    set_field(completed, "env_indices", infer.env_indices)
    set_field(completed, "step_ids", infer.step_ids)
    set_field(completed, "reuse", None)
    set_field(completed, "spaces", infer.spaces)
    return completed


class _Store:
    """Rows of one layout, each in a place of its own, which is used again once it is free.

    Text is kept as strings: in an array, one long string would cost its length times the rows.

    Args:
        like: An observation of the layout.
    """

    def __init__(self, like: Observation) -> None:
        self._images = {name: image[:0] for name, image in like.images.items()}
        self._states = {name: state[:0] for name, state in like.states.items()}
        self._text = np.empty(0, object)
        self._characters = 0
        self._free: list[int] = []

    @property
    def nbytes(self) -> int:
        """Bytes that the store takes, its free places included."""
        arrays = (*self._images.values(), *self._states.values())
        return sum(array.nbytes for array in arrays) + 4 * self._characters

    def put(self, rows: Observation) -> np.ndarray:
        """Copy k rows in; returns their places, i4[k]."""
        count = len(rows)
        if len(self._free) < count:
            self._grow(count)
        places = np.array(self._free[-count:], np.int32)
        del self._free[-count:]
        for name, image in rows.images.items():
            self._images[name][places] = image
        for name, state in rows.states.items():
            self._states[name][places] = state
        self._text[places] = rows.text
        self._characters += sum(map(len, rows.text.tolist()))
        return places

    def take(self, places: np.ndarray, max_bytes: int) -> Observation:
        """The rows at some places, copied out.

        Raises:
            RemoteProtocolError: Their text, padded to the longest, is over `max_bytes`.
        """
        text = self._text[places].tolist()
        _check_size(4 * len(text) * max(map(len, text)), max_bytes)
        return Observation(
            {name: image[places] for name, image in self._images.items()},
            {name: state[places] for name, state in self._states.items()},
            np.array(text, np.str_),
        )

    def free(self, places: np.ndarray) -> None:
        """Give some places back."""
        self._characters -= sum(map(len, self._text[places].tolist()))
        self._text[places] = None
        self._free += places.tolist()

    def _grow(self, count: int) -> None:
        old = len(self._text)
        new = max(2 * old, old + count)
        self._images = {name: _longer(image, new) for name, image in self._images.items()}
        self._states = {name: _longer(state, new) for name, state in self._states.items()}
        self._text = _longer(self._text, new)
        self._free += range(old, new)


def _longer(rows: np.ndarray, count: int) -> np.ndarray:
    """A copy with room for `count` rows."""
    longer = np.empty((count, *rows.shape[1:]), rows.dtype)
    longer[: len(rows)] = rows
    return longer


def _merge(reuse: np.ndarray, held: Observation, sent: Observation, max_bytes: int) -> Observation:
    """All rows in the order of the message: those held where b1[n] `reuse` is true, those sent elsewhere."""
    texts = held.text, sent.text
    width = max(text.dtype.itemsize for text in texts)
    _check_size(len(reuse) * width, max_bytes)
    kept, new = np.flatnonzero(reuse), np.flatnonzero(~reuse)

    def rows(parts: Sequence[np.ndarray]) -> np.ndarray:
        dtype = np.promote_types(parts[0].dtype, parts[1].dtype)  # they differ in the width of text only
        merged = np.empty((len(reuse), *parts[0].shape[1:]), dtype)
        merged[kept], merged[new] = parts
        return merged

    return Observation(
        {name: rows((image, sent.images[name])) for name, image in held.images.items()},
        {name: rows((state, sent.states[name])) for name, state in held.states.items()},
        rows(texts),
    )


def _ordered(held: Observation, sent: Observation) -> Observation:
    """The held rows with their keys in the order of the message, which policies may read them in."""
    if [*held.states] == [*sent.states] and [*held.images] == [*sent.images]:
        return held
    return Observation(
        {name: held.images[name] for name in sent.images}, {name: held.states[name] for name in sent.states}, held.text
    )


def _frozen(copy: Observation) -> Observation:
    """Our copy, as read-only as what is decoded: what is handed out may be handed out again."""
    for array in (*copy.images.values(), *copy.states.values(), copy.text):
        array.flags.writeable = False
    return copy


def _tight(observation: Observation) -> Observation:
    """The same with text as wide as its longest string, as if these rows had travelled alone (SPEC 3.4)."""
    text = observation.text
    width = text.dtype.itemsize // 4
    if width <= 1 or not len(text):
        return observation
    characters = np.ascontiguousarray(text).view(np.uint32).reshape(len(text), width)
    if characters[:, -1].any():
        return observation
    used = np.flatnonzero(characters.any(axis=0))
    text = text.astype(f"<U{used[-1] + 1 if len(used) else 1}")
    text.flags.writeable = False
    return Observation(observation.images, observation.states, text)


def _layout(observation: Observation) -> Layout:
    layout = {("states", name): (state.dtype, state.shape[1:]) for name, state in observation.states.items()}
    for name, image in observation.images.items():
        layout["images", name] = image.dtype, image.shape[1:]
    return layout


def _describe(rows: tuple[np.dtype[Any], tuple[int, ...]] | None) -> str:
    if rows is None:
        return "nothing"
    dtype, shape = rows
    return f"{dtype.name}[{','.join(('n', *map(str, shape)))}]"


def _bits(numbers: np.ndarray) -> np.ndarray:
    return numbers.view(f"u{numbers.dtype.itemsize}")


def _check_size(size: int, most: int) -> None:
    if size > most:
        raise RemoteProtocolError(
            "10.1 reuse/held", f"infer.reuse: completed, it has {size} bytes, expected at most {most}"
        )


def _not_held(env: int) -> str:
    return f"infer.reuse: env {env} has no feedback on this connection that did not end its episode"
