"""Readers of typed fields: what a message expects of one value, and the sentence when it is something else.

Each raises LocalProtocolError; whoever parses what a peer sent turns that into the peer's fault (`errors.blame_peer`).
"""

import functools
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from plugrl_protocol.errors import LocalProtocolError

_KIND_NAMES = {"b": "bool", "i": "int", "u": "uint", "f": "float", "U": "str"}
_TYPE_NAMES = {dict: "map", list: "list", tuple: "list", bytes: "bin", type(None): "nil"}
_MAX_INDEX = 65_535
_FEW = 256
MAX_ENVS = _MAX_INDEX + 1
"""Envs that one message can name (SPEC 4.4)."""


def describe(value: object, *, exact: bool = False) -> str:
    """What `value` is, for the end of an error: `float[3,1]` (if exact: `float64[3,1]`), `map`, `nil`, `str`."""
    if isinstance(value, np.ndarray):
        name = value.dtype.name if exact else _KIND_NAMES.get(value.dtype.kind, value.dtype.name)
        return f"{name}[{','.join(map(str, value.shape))}]"
    if isinstance(value, Mapping):
        return "map"
    return _TYPE_NAMES.get(type(value), type(value).__name__)


def mismatch(clause: str, path: str, expected: str, value: object, *, exact: bool = False) -> LocalProtocolError:
    """The error `<path>: expected <expected>, got <what it is>`."""
    return LocalProtocolError(clause, f"{path}: expected {expected}, got {describe(value, exact=exact)}")


def read_map(value: object, path: str, clause: str) -> Mapping[Any, Any]:
    """A map with str keys."""
    if type(value) is not dict and not isinstance(value, Mapping):
        raise mismatch(clause, path, "map", value)
    for key in value:
        if not isinstance(key, str):
            raise LocalProtocolError(clause, f"{path}: expected str keys, got {describe(key)} {key!r:.40}")
    return value


def read_key(value: Mapping[Any, Any], key: str, path: str, clause: str) -> Any:
    """The value under a required key."""
    try:
        return value[key]
    except KeyError:
        raise LocalProtocolError(clause, f"{path}: missing key {key!r}") from None


def read_closed_map(value: object, keys: frozenset[str], path: str, clause: str) -> Mapping[str, Any]:
    """A map with exactly `keys`."""
    if type(value) is dict and value.keys() == keys:
        return value
    found = read_map(value, path, clause)
    if found.keys() != keys:
        for key in sorted(keys - found.keys()):
            raise LocalProtocolError(clause, f"{path}: missing key {key!r}")
        unknown = sorted(found.keys() - keys)[0]
        raise LocalProtocolError(
            clause, f"{path}: unknown key {unknown!r:.60}, expected exactly {', '.join(sorted(keys))}"
        )
    return found


def read_count(value: object, path: str, clause: str, least: int = 1) -> int:
    """An int of at least `least`; a bool is no int, a NumPy integer scalar is one."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise mismatch(clause, path, "int", value)
    if value < least:
        raise LocalProtocolError(clause, f"{path}: expected int >= {least}, got {value}")
    return int(value)


def _is(value: object, kinds: str, rows: int | None) -> bool:
    return (
        isinstance(value, np.ndarray)
        and value.dtype.kind in kinds
        and value.ndim == 1
        and (rows is None or len(value) == rows)
    )


# The readers of arrays begin with what is nearly always there, and then is not looked at again: NumPy's own dtype
# objects, of which there is one each.
_INT64, _FLOAT32, _BOOL = np.dtype(np.int64), np.dtype(np.float32), np.dtype(np.bool_)


def read_ints(value: object, rows: int, path: str, clause: str) -> np.ndarray:
    """An integer array of shape [rows], as int64."""
    if type(value) is np.ndarray and value.dtype is _INT64 and value.shape == (rows,):
        return value
    if not _is(value, "iu", rows):
        raise mismatch(clause, path, f"int[{rows}]", value)
    return _int64(value)  # type: ignore[arg-type]


def read_floats(value: object, rows: int, path: str, clause: str) -> np.ndarray:
    """A float array of any width and shape [rows], as float32; a value too large for it becomes inf."""
    if type(value) is np.ndarray and value.dtype is _FLOAT32 and value.shape == (rows,):
        return value
    if not _is(value, "f", rows):
        raise mismatch(clause, path, f"float[{rows}]", value)
    if value.dtype == np.float32:  # type: ignore[attr-defined]
        return value  # type: ignore[return-value]
    with np.errstate(over="ignore"):
        return value.astype(np.float32)  # type: ignore[attr-defined,no-any-return]


def read_flags(value: object, rows: int, path: str, clause: str) -> np.ndarray:
    """A bool array of shape [rows]."""
    if type(value) is np.ndarray and value.dtype is _BOOL and value.shape == (rows,):
        return value
    if not _is(value, "b", rows):
        raise mismatch(clause, path, f"bool[{rows}]", value)
    return value  # type: ignore[return-value]


def read_env_indices(value: object, path: str) -> np.ndarray:
    """Env indices (SPEC 4.4): an integer array of at least one row, each in 0..65,535, no two equal; as int64."""
    if type(value) is np.ndarray and value.dtype is _INT64 and value.ndim == 1 and 0 < len(value) <= _FEW:
        _check_few(value.tobytes(), path)
        return value
    if not _is(value, "iu", None):
        raise mismatch("4.4 indices/dtype", path, "int[n]", value)
    if len(value) == 0:  # type: ignore[arg-type]
        raise LocalProtocolError("4.4 indices/empty", f"{path}: expected at least one env, got int[0]")
    if len(value) > MAX_ENVS:  # type: ignore[arg-type]
        raise LocalProtocolError(
            "4.4 indices/unique", f"{path}: expected at most {MAX_ENVS} envs, got {describe(value)}"
        )
    _check_indices(value.tolist(), path)  # type: ignore[attr-defined]
    return _int64(value)  # type: ignore[arg-type]


@functools.lru_cache(maxsize=512)
def _check_few(indices: bytes, path: str) -> None:
    """Check indices that are few: those of a connection are the same in nearly every message."""
    _check_indices(np.frombuffer(indices, np.int64).tolist(), path)


def _check_indices(indices: list[int], path: str) -> None:
    if min(indices) < 0 or max(indices) > _MAX_INDEX:
        wrong = next(index for index in indices if not 0 <= index <= _MAX_INDEX)
        raise LocalProtocolError("4.4 indices/range", f"{path}: expected 0..{_MAX_INDEX}, got {wrong}")
    if len(set(indices)) != len(indices):
        twice = Counter(indices).most_common(1)[0][0]
        raise LocalProtocolError("4.4 indices/unique", f"{path}: env {twice} is named twice")


def _int64(value: np.ndarray) -> np.ndarray:
    return value if value.dtype == np.int64 else value.astype(np.int64)
