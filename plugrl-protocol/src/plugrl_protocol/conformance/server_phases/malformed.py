"""Frames that no server may take: every kind that has been seen in the field (SPEC 7.2)."""

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import msgpack
import numpy as np

from plugrl_protocol.codec.arrays import ARRAY_MARKER, SCALAR_MARKER

Wire = dict[str, Any]
_RESYNC, _INFO, _TEXT = "7.2 closing/resync", "5.4 feedback/info", "7.4 closing/text-frame"


@dataclass(frozen=True)
class Malformed:
    """One kind of fault.

    Attributes:
        name: What is wrong, for people.
        turn: Which message it stands in for, `infer` or `feedback`.
        frame: What to send; a str goes as a text frame.
        clause: What a server breaks that goes on.
        wrong_close: What it breaks by closing in another way than for a resync.
    """

    name: str
    turn: str
    frame: bytes | str
    clause: str = _RESYNC
    wrong_close: str = _RESYNC


def malformed(infer: Wire, feedback: Wire) -> Iterator[Malformed]:
    """Every kind, in the order to try.

    Args:
        infer: A right infer of two rows or more, as it travels.
        feedback: A right feedback of two rows or more, as it travels.
    """
    yield Malformed("an infer without env_indices", "infer", _changed(infer, lambda wire: wire.pop("env_indices")))
    yield Malformed("two infers in a row", "feedback", _pack(infer))
    unsplit = _changed(feedback, lambda wire: wire["data"].update(info={"task": "pick"}))
    yield Malformed("an info that cannot be split", "feedback", unsplit, wrong_close=_INFO)
    as_list = _changed(feedback, lambda wire: wire["data"].update(info={"score": [0.0] * len(wire["env_indices"])}))
    yield Malformed("an info with a list where an array belongs", "feedback", as_list, wrong_close=_INFO)
    yield Malformed("a text frame", "infer", "this is no infer", clause=_TEXT)
    yield from _frames(infer)
    for name, change in _INFERS.items():
        yield Malformed(f"an infer with {name}", "infer", _changed(infer, change))
    for name, change in _FEEDBACKS.items():
        yield Malformed(f"a feedback with {name}", "feedback", _changed(feedback, change))


def wider(infer: Wire) -> bytes:
    """An infer whose states are one number wider; a server that does not read them may answer it."""

    def widen(wire: Wire) -> None:
        states = wire["data"]["states"]
        for name, state in states.items():
            states[name] = np.concatenate([state, state[:, :1]], axis=1)

    return _changed(infer, widen)


def _frames(infer: Wire) -> Iterator[Malformed]:
    whole = _pack(infer)
    deep: Any = 0
    for _ in range(200):
        deep = [deep]
    for name, frame in {
        "an empty frame": b"",
        "a byte that is no msgpack": b"\xc1",
        "a frame that ends too soon": whole[:-3],
        "a frame with bytes after its value": whole + b"\x00",
        "an ext type": b"\xc7\x01\x05\x00",
        "a list instead of a map": _pack([1, 2, 3]),
        "a map with int keys": _pack({1: 2}),
        "200 lists inside one another": _pack(infer | {"x": deep}),
        "a header of 4 billion elements": b"\xdd\xff\xff\xff\xff",
        "an unknown message_type": _pack(infer | {"message_type": "hello"}),
        "an action from a client": _pack({"message_type": "action", "data": {}}),
    }.items():
        yield Malformed(name, "infer", frame)


def _put(path: str, value: Any) -> Callable[[Wire], None]:
    *parents, last = path.split(".")

    def change(wire: Wire) -> None:
        target = wire
        for parent in parents:
            target = target[parent]
        target[last] = value

    return change


def _each_state(make: Callable[[np.ndarray], Any]) -> Callable[[Wire], None]:
    def change(wire: Wire) -> None:
        states = wire["data"]["states"]
        for name in states:
            states[name] = make(states[name])

    return change


def _with_nan(state: np.ndarray) -> np.ndarray:
    state[0, 0] = np.nan
    return state


def _raw(state: np.ndarray, **changes: Any) -> dict[bytes, Any]:
    return _expand(state) | {key.encode(): value for key, value in changes.items()}


def _indices(*values: int) -> Callable[[Wire], None]:
    def change(wire: Wire) -> None:
        indices = wire["env_indices"].copy()
        indices[: len(values)] = values
        wire["env_indices"] = indices

    return change


_INFERS: dict[str, Callable[[Wire], Any]] = {
    "scalar indices": _put("env_indices", 0),
    "an index list": _put("env_indices", [0, 1]),
    "float indices": lambda wire: wire.update(env_indices=wire["env_indices"].astype(np.float64)),
    "an env named twice": _indices(1, 1),
    "a negative index": _indices(-1),
    "the index 65,536": _indices(65_536),
    "no env": _put("env_indices", np.zeros(0, np.int64)),
    "too few rows": _each_state(lambda state: state[:-1]),
    "too many rows": _each_state(lambda state: np.concatenate([state, state])),
    "states of several lengths": lambda wire: wire["data"]["states"].update(x=np.zeros((1, 1))),
    "a state that is a list": _each_state(lambda state: state.tolist()),
    "a state of one dimension": _each_state(lambda state: state[:, 0]),
    "NaN in a state": _each_state(_with_nan),
    "nil data": _put("data", None),
    "an array with nil data": _each_state(lambda state: _raw(state, data=None)),
    "an array with too few bytes": _each_state(lambda state: _raw(state, data=state.tobytes()[:-1])),
    "an array of Python objects": _each_state(lambda state: _raw(state, dtype="|O")),
    "an array of shape -1": _each_state(lambda state: _raw(state, shape=[-1])),
    "a key of the observation missing": lambda wire: wire["data"].pop("images"),
    "an unknown key in the observation": _put("data.x", 0),
    "step_ids missing": lambda wire: wire.pop("step_ids"),
}

_FEEDBACKS: dict[str, Callable[[Wire], Any]] = {
    "string rewards": lambda wire: wire["data"].update(rewards=np.array(["1"] * len(wire["env_indices"]))),
    "a reward list": lambda wire: wire["data"].update(rewards=[1.0] * len(wire["env_indices"])),
    "too few rewards": lambda wire: wire["data"].update(rewards=wire["data"]["rewards"][:-1]),
    "int flags": lambda wire: wire["data"].update(terminated=wire["data"]["terminated"].astype(np.int64)),
    "terminated missing": lambda wire: wire["data"].pop("terminated"),
    "an unknown key in its data": _put("data.x", 0),
    "an info that is no map": _put("data.info", [1]),
    "a returns array of str in info.episode": lambda wire: wire["data"].update(
        info={"episode": {"r": np.array(["1"] * len(wire["env_indices"]))}}
    ),
    "an env named twice": _indices(1, 1),
}


def _changed(wire: Wire, change: Callable[[Wire], Any]) -> bytes:
    copied = copy.deepcopy(wire)
    change(copied)
    return _pack(copied)


def _pack(value: Any) -> bytes:
    """Packs as msgpack does, without the checks of our encoder."""
    return bytes(msgpack.packb(value, default=_expand))


def _expand(value: Any) -> dict[bytes, Any]:
    if isinstance(value, np.generic):
        return {SCALAR_MARKER: True, b"data": value.item(), b"dtype": value.dtype.str}
    array = np.ascontiguousarray(value)
    return {ARRAY_MARKER: True, b"data": array.tobytes(), b"dtype": array.dtype.str, b"shape": list(array.shape)}
