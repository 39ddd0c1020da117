"""One frame, as an end reads it: decode, then the message it holds.

Whatever the bytes are, these must hold:

- there is a value or the one typed error, which names a clause of SPEC.md and fits in a log line and a close frame;
- msgpack's C unpacker and the careful reader agree on it, and so do the templates on frames that differ little from it;
- a value that was decoded can be encoded, and comes back; a message too, and its rows fit together.
"""
# ruff: noqa: S101 - an assertion is how a finding shows

import random
import zlib
from collections.abc import Callable
from typing import Any

import msgpack
import numpy as np
from plugrl_protocol.codec import decode, encode
from plugrl_protocol.codec.reader import Reader
from plugrl_protocol.conformance.clauses import BY_ID
from plugrl_protocol.errors import RemoteProtocolError
from plugrl_protocol.messages import Action, Feedback, Infer, Message, message_from_wire
from plugrl_protocol.messages.templates import MessageReader
from plugrl_protocol.observation import Observation

_LONGEST_DETAIL = 2_000
_LONGEST_REASON = 123  # bytes of a close frame (RFC 6455, 5.5)


def run(frame: bytes) -> str:
    """Read one frame.

    Returns:
        How it ended: the clause of the refusal, or the message type.

    Raises:
        AssertionError: One of the promises above was not kept.
    """
    value, refusal = attempt(lambda: decode(frame))
    careful, other_refusal = attempt(lambda: Reader(frame).read())
    if refusal is None and other_refusal is not None and repeats_a_key(frame):
        return "a key that comes twice"  # the C unpacker drops the first value before anyone has looked at it
    assert str(refusal) == str(other_refusal), f"decode: {refusal}; the careful reader: {other_refusal}"
    if refusal is not None:
        return refusal.clause
    assert same(value, careful), f"decode: {value!r:.200}; the careful reader: {careful!r:.200}"
    again = encode(value)
    assert same(decode(again), value), f"{value!r:.200} came back as {decode(again)!r:.200}"
    message, refusal = attempt(lambda: message_from_wire(value))
    if refusal is not None:
        return refusal.clause
    check_message(message)
    check_templates(frame)
    return type(message).__name__.lower()


def attempt(read: Callable[[], Any]) -> tuple[Any, RemoteProtocolError | None]:
    """What was read, or its refusal. Any other exception is a finding."""
    try:
        return read(), None
    except RemoteProtocolError as error:
        check_refusal(error)
        return None, error


def repeats_a_key(frame: bytes) -> bool:
    """Whether a map in the frame, which is well-formed msgpack, has a key twice: the last one counts."""
    repeats: list[bool] = []
    msgpack.unpackb(frame, object_pairs_hook=lambda pairs: repeats.append(len(dict(pairs)) < len(pairs)))
    return any(repeats)


def check_refusal(error: RemoteProtocolError) -> None:
    """A refusal names a clause that exists; its text can be logged and its close can be sent."""
    assert error.clause in BY_ID, f"clause {error.clause!r} is not in SPEC.md"
    assert 0 < len(error.detail) <= _LONGEST_DETAIL, f"a detail of {len(error.detail)} characters"
    assert error.detail.isprintable(), f"a detail that breaks a log line: {error.detail!r:.200}"
    assert len(error.close.reason.encode()) <= _LONGEST_REASON, f"a reason too long to send: {error.close.reason!r}"


def check_message(message: Message) -> None:
    """The rows of an accepted message fit together, and it travels unchanged."""
    if isinstance(message, Infer):
        reused = 0 if message.reuse is None else int(message.reuse.sum())
        check_rows(message.env_indices, message.step_ids, message.reuse)
        check_observation(message.observation, len(message.env_indices) - reused)
    elif isinstance(message, Feedback):
        check_rows(message.env_indices, message.step_ids, message.rewards, message.terminated, message.truncated)
        check_observation(message.observation, len(message.env_indices))
        assert len(list(message.info_rows())) == len(message.env_indices)
    elif isinstance(message, Action):
        assert message.action.ndim >= 2
        assert message.env_ids is None or message.env_ids.shape == message.action.shape[1:2]
    frame = encode(message.to_wire())
    assert encode(message_from_wire(decode(frame)).to_wire()) == frame, "a message did not travel unchanged"


def check_templates(frame: bytes, variants: int = 8) -> None:
    """A connection that has often read this frame reads what is nearly the same as one that has not."""
    reader, pick = MessageReader(), random.Random(zlib.crc32(frame))
    for _ in range(4):
        reader.read(frame)
    for _ in range(variants):
        variant = bytearray(frame)
        variant[pick.randrange(len(frame))] = pick.choice((0, 1, 2, 0x7F, 0x80, 0xFF, pick.randrange(256)))
        quick, refusal = attempt(lambda: reader.read(bytes(variant)))  # noqa: B023 - called at once
        whole, other_refusal = attempt(lambda: message_from_wire(decode(variant)))  # noqa: B023
        assert str(refusal) == str(other_refusal), f"by template: {refusal}; the whole way: {other_refusal}"
        assert refusal or encode(quick.to_wire()) == encode(whole.to_wire()), f"by template: {quick}; else: {whole}"


def check_rows(env_indices: np.ndarray, *columns: np.ndarray | None) -> None:
    """Env indices are as SPEC 4.4 has them, and every column has a value for each."""
    indices = env_indices.tolist()
    assert indices
    assert len(set(indices)) == len(indices)
    assert 0 <= min(indices) <= max(indices) <= 65_535
    for column in columns:
        assert column is None or column.shape == env_indices.shape


def check_observation(observation: Observation, rows: int) -> None:
    """Every array has the right rank, byte order and number of rows."""
    assert len(observation) == rows
    assert observation.text.shape == (rows,)
    assert observation.text.dtype.kind == "U"
    for arrays, ndim in ((observation.images, 4), (observation.states, 2)):
        for array in arrays.values():
            assert array.ndim == ndim
            assert len(array) == rows
            assert array.dtype.isnative


def same(one: Any, other: Any) -> bool:
    """Equal in type, order and every bit; a NumPy float64 is a Python float (SPEC 3.2)."""
    if isinstance(one, float) and isinstance(other, float):
        return bool(one == other or (one != one and other != other))
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        return (one.dtype.str, one.shape, one.tobytes()) == (other.dtype.str, other.shape, other.tobytes())
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other or (one != one and other != other))
