"""What the run's policy reads of an observation, and whether a client's observation fits it.

One client's odd observation must close its own connection, never reach the batch that all clients share (lesson 2).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np
from plugrl_protocol.errors import RemoteProtocolError
from plugrl_protocol.observation import Observation

from plugrl_server.training.trainer import all_finite

Layout: TypeAlias = tuple[tuple[str, str, tuple[int, ...]], ...]
"""Kind ("images" or "states"), name and row shape of every array of an observation. Equal layouts can be batched."""

CLAUSE = "5.2 observation/policy"

WIDE_TEXT = 1024
"""Characters up to which texts stay in a NumPy text array, whose every row is as wide as the longest: joined with the
rows of others, one very long text would take its length times their number."""


@dataclasses.dataclass(slots=True, eq=False)
class Reading:
    """The part of an observation that the policy reads.

    Attributes:
        obs: `{"images": {name: u1[n,h,w,c]}, "states": {name: number[n,d]}, "text": <U[n]}`; where a text is longer
            than `WIDE_TEXT`, the texts are an object array of str, [n].
        layout: Names and row shapes of the arrays in it.
    """

    obs: dict[str, Any]
    layout: Layout


class ObservationReader:
    """Reduces observations to the keys a policy reads and refuses those that do not fit the run.

    Row shapes are fixed by the first observation of the run that has the key, so that batches and buffers stay of one
    shape. A policy that names no keys reads all of them; each connection then keeps to the keys it began with.

    Args:
        policy: Has `image_keys`, `state_keys` (None: all) and `check_observation(obs) -> str | None`.
    """

    def __init__(self, policy: Any) -> None:
        self._image_keys: tuple[str, ...] | None = policy.image_keys
        self._state_keys: tuple[str, ...] | None = policy.state_keys
        self._complaint = policy.check_observation
        self._shapes: dict[tuple[str, str], tuple[int, ...]] = {}

    def read(self, observation: Observation, path: str, known: Layout | None) -> Reading:
        """Return what the policy reads of an observation.

        Args:
            observation: n rows.
            path: Where it stood in the message, for the error.
            known: The layout of the connection's first observation, None for that one.

        Raises:
            RemoteProtocolError: A key is missing, or an array has another row shape than this run's.
        """
        images = _select(observation.images, self._image_keys, f"{path}.images")
        states = _select(observation.states, self._state_keys, f"{path}.states")
        text = observation.text
        if text.dtype.itemsize > 4 * WIDE_TEXT:
            text = text.astype(object)
        reading = Reading({"images": images, "states": states, "text": text}, _layout(images, states))
        if reading.layout != known:
            self._check(reading, path, known)
        return reading

    def _check(self, reading: Reading, path: str, known: Layout | None) -> None:
        complaint = self._complaint(reading.obs)
        if complaint is not None:
            raise RemoteProtocolError(CLAUSE, f"{path}: {complaint}")
        for kind, name, shape in reading.layout:
            fixed = self._shapes.get((kind, name), shape)
            if shape != fixed:
                raise RemoteProtocolError(
                    CLAUSE,
                    f"{path}.{kind}.{name}: expected {_rows(fixed)} as everywhere in this run, got {_rows(shape)}",
                )
        if known is not None and known != reading.layout:
            raise RemoteProtocolError(
                CLAUSE,
                f"{path}: expected the keys this connection began with ({_names(known)}), got {_names(reading.layout)}",
            )
        self._shapes.update({(kind, name): shape for kind, name, shape in reading.layout})


def find_not_finite(obs: Mapping[str, Any]) -> tuple[int, str] | None:
    """Return the first row with a NaN or infinite state and that state's name, None when all are finite."""
    for name, state in _floats(obs):
        if not all_finite(state):
            return int(np.flatnonzero(~np.isfinite(state).all(axis=1))[0]), f"states.{name}"
    return None


def finite_rows(obs: Mapping[str, Any], rewards: np.ndarray) -> np.ndarray | None:
    """Return which of m rows have only finite numbers in their states and reward, b1[m]; None where all have."""
    faulty = [rewards[:, None]] if not all_finite(rewards) else []
    faulty += [state for _, state in _floats(obs) if not all_finite(state)]
    if not faulty:
        return None
    finite: np.ndarray = np.logical_and.reduce([np.isfinite(numbers).all(axis=1) for numbers in faulty])
    return finite


def not_finite_key(obs: Mapping[str, Any], rewards: np.ndarray, row: int) -> str:
    """Return the name of the first thing in a row that is not finite."""
    if not np.isfinite(rewards[row]):
        return "rewards"
    return next(f"obs.states.{name}" for name, state in _floats(obs) if not np.isfinite(state[row]).all())


def _floats(obs: Mapping[str, Any]) -> Iterator[tuple[str, np.ndarray]]:
    return ((name, state) for name, state in obs["states"].items() if state.dtype.kind == "f")


def _select(arrays: Mapping[str, np.ndarray], keys: tuple[str, ...] | None, path: str) -> dict[str, np.ndarray]:
    if keys is None:
        return dict(arrays)
    try:
        return {key: arrays[key] for key in keys}
    except KeyError as error:
        there = ", ".join(sorted(arrays)) or "none"
        raise RemoteProtocolError(CLAUSE, f"{path}: this run's policy reads {error}, got {there}") from None


def _layout(images: Mapping[str, np.ndarray], states: Mapping[str, np.ndarray]) -> Layout:
    found = [("states", name, state.shape[1:]) for name, state in states.items()]
    if images:
        found += [("images", name, image.shape[1:]) for name, image in images.items()]
    return tuple(sorted(found)) if len(found) > 1 else tuple(found)


def _rows(shape: tuple[int, ...]) -> str:
    return f"[n,{','.join(map(str, shape))}]"


def _names(layout: Layout) -> str:
    return ", ".join(f"{kind}.{name}" for kind, name, _ in layout) or "none"
