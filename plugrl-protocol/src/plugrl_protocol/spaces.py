"""The `declare-spaces` feature: what an env's actions look like (SPEC 10.2)."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np

from plugrl_protocol.codec.arrays import NotAllowedError, allowed_dtype
from plugrl_protocol.codec.fields import describe, mismatch, read_count, read_key, read_map
from plugrl_protocol.errors import LocalProtocolError, blame_peer

_CLAUSE = "10.2 spaces/action"
MAX_NUMBERS = 2**20
"""Numbers in one action: bounds of one byte each, read as numbers of eight, must not fill the memory."""
_MAX_INT = 2**63 - 1  # discrete actions are int64


@dataclass(frozen=True)
class BoxSpace:
    """Actions of one shape between bounds, which may be infinite.

    Attributes:
        shape: Shape of one action.
        dtype: An int, uint or float dtype.
        low: Lower bounds, of `shape` and `dtype`.
        high: Upper bounds, of `shape` and `dtype`.

    Raises:
        LocalProtocolError: The bounds have another shape or are no bounds.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    low: np.ndarray
    high: np.ndarray
    kind: ClassVar[str] = "box"

    def __post_init__(self) -> None:
        shape = tuple(read_count(length, "box.shape", _CLAUSE, least=0) for length in self.shape)
        dtype = np.dtype(self.dtype).newbyteorder("=")
        if dtype.kind not in "iuf" or dtype.itemsize > 8:
            raise LocalProtocolError(_CLAUSE, f"box.dtype: expected int, uint or float of up to 8 bytes, got {dtype}")
        object.__setattr__(self, "shape", shape)
        object.__setattr__(self, "dtype", dtype)
        _check_numbers(math.prod(shape), "box.shape")
        for name in ("low", "high"):
            object.__setattr__(self, name, _read_bound(getattr(self, name), shape, dtype, f"box.{name}"))
        if not bool(np.all(self.low <= self.high)):
            raise LocalProtocolError(_CLAUSE, "box.low: expected low <= high everywhere")
        if bool(np.any(self.low == np.inf)) or bool(np.any(self.high == -np.inf)):
            raise LocalProtocolError(_CLAUSE, "box.low: expected room for a finite number between low and high")

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, BoxSpace)
            and (self.shape, self.dtype) == (other.shape, other.dtype)
            and np.array_equal(self.low, other.low)
            and np.array_equal(self.high, other.high)
        )

    def __hash__(self) -> int:
        return hash((self.shape, self.dtype, self.low.tobytes(), self.high.tobytes()))

    def __str__(self) -> str:
        return f"Box{self.shape}"

    def to_wire(self) -> dict[str, Any]:
        """The space as it travels."""
        return {
            "kind": self.kind,
            "shape": list(self.shape),
            "dtype": self.dtype.str,
            "low": self.low,
            "high": self.high,
        }


@dataclass(frozen=True)
class DiscreteSpace:
    """Actions start, start + 1, ..., start + n - 1."""

    n: int
    start: int = 0
    kind: ClassVar[str] = "discrete"
    shape: ClassVar[tuple[int, ...]] = ()
    dtype: ClassVar[np.dtype[Any]] = np.dtype(np.int64)

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", read_count(self.n, "discrete.n", _CLAUSE))
        object.__setattr__(self, "start", read_count(self.start, "discrete.start", _CLAUSE, least=-(2**53)))
        if self.start + self.n - 1 > _MAX_INT:
            raise LocalProtocolError(_CLAUSE, f"discrete.n: expected actions of 64 bits, got {self}")

    def __str__(self) -> str:
        return f"Discrete({self.n})" if self.start == 0 else f"Discrete({self.n}, start={self.start})"

    def to_wire(self) -> dict[str, Any]:
        """The space as it travels."""
        return {"kind": self.kind, "n": self.n, "start": self.start}


@dataclass(frozen=True)
class MultiDiscreteSpace:
    """One choice of 0..nvec[i]-1 for each i."""

    nvec: np.ndarray
    kind: ClassVar[str] = "multi_discrete"
    dtype: ClassVar[np.dtype[Any]] = np.dtype(np.int64)

    def __post_init__(self) -> None:
        nvec = self.nvec
        if not isinstance(nvec, np.ndarray) or nvec.dtype.kind not in "iu" or nvec.ndim == 0 or nvec.size == 0:
            raise mismatch(_CLAUSE, "multi_discrete.nvec", "int[k]", nvec)
        _check_numbers(nvec.size, "multi_discrete.nvec")
        for wrong in (int(nvec.min()), int(nvec.max())):
            if not 1 <= wrong <= _MAX_INT:
                raise LocalProtocolError(_CLAUSE, f"multi_discrete.nvec: expected ints >= 1 of 64 bits, got {wrong}")
        object.__setattr__(self, "nvec", nvec.astype(np.int64))

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one action."""
        return self.nvec.shape

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MultiDiscreteSpace) and np.array_equal(self.nvec, other.nvec)

    def __hash__(self) -> int:
        return hash((self.shape, self.nvec.tobytes()))

    def __str__(self) -> str:
        return f"MultiDiscrete({self.nvec.tolist()})"

    def to_wire(self) -> dict[str, Any]:
        """The space as it travels."""
        return {"kind": self.kind, "nvec": self.nvec}


@dataclass(frozen=True)
class MultiBinarySpace:
    """n switches, each 0 or 1."""

    n: int
    kind: ClassVar[str] = "multi_binary"
    dtype: ClassVar[np.dtype[Any]] = np.dtype(np.int8)

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", read_count(self.n, "multi_binary.n", _CLAUSE))
        _check_numbers(self.n, "multi_binary.n")

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one action."""
        return (self.n,)

    def __str__(self) -> str:
        return f"MultiBinary({self.n})"

    def to_wire(self) -> dict[str, Any]:
        """The space as it travels."""
        return {"kind": self.kind, "n": self.n}


ActionSpace: TypeAlias = BoxSpace | DiscreteSpace | MultiDiscreteSpace | MultiBinarySpace


def _check_numbers(numbers: int, path: str) -> None:
    if numbers > MAX_NUMBERS:
        raise LocalProtocolError(_CLAUSE, f"{path}: expected at most {MAX_NUMBERS} numbers in an action, got {numbers}")


def _read_bound(value: object, shape: tuple[int, ...], dtype: np.dtype[Any], path: str) -> np.ndarray:
    expected = f"{'float' if dtype.kind == 'f' else 'int'}[{','.join(map(str, shape))}]"
    kinds = "iuf" if dtype.kind == "f" else "iu"
    if not isinstance(value, np.ndarray) or value.dtype.kind not in kinds or value.shape != shape:
        raise mismatch(_CLAUSE, path, expected, value)
    with np.errstate(over="ignore"):
        bound = value.astype(dtype)
    if np.isnan(bound).any() or (dtype.kind != "f" and not np.array_equal(bound, value)):
        raise LocalProtocolError(_CLAUSE, f"{path}: expected values of {dtype}")
    return bound


def _read_box(value: Mapping[Any, Any]) -> BoxSpace:
    shape, typestr, low, high = (read_key(value, key, "box", _CLAUSE) for key in ("shape", "dtype", "low", "high"))
    if not isinstance(shape, list):
        raise mismatch(_CLAUSE, "box.shape", "list of int", shape)
    try:
        dtype = allowed_dtype(typestr)
    except NotAllowedError as error:
        raise LocalProtocolError(_CLAUSE, f"box.{error}") from None
    return BoxSpace(tuple(shape), dtype, low, high)


_READERS: dict[str, Callable[[Mapping[Any, Any]], ActionSpace]] = {
    "box": _read_box,
    "discrete": lambda value: DiscreteSpace(read_key(value, "n", "discrete", _CLAUSE), value.get("start", 0)),
    "multi_discrete": lambda value: MultiDiscreteSpace(read_key(value, "nvec", "multi_discrete", _CLAUSE)),
    "multi_binary": lambda value: MultiBinarySpace(read_key(value, "n", "multi_binary", _CLAUSE)),
}


@blame_peer
def action_space_from_wire(value: object, path: str) -> ActionSpace:
    """Read the action space that a peer declared at `path`.

    Raises:
        RemoteProtocolError: It is none of the four kinds; the detail starts with the path.
    """
    found = read_map(value, path, _CLAUSE)
    kind = read_key(found, "kind", path, _CLAUSE)
    if not isinstance(kind, str) or kind not in _READERS:
        raise LocalProtocolError(_CLAUSE, f"{path}.kind: expected {', '.join(_READERS)}, got {kind!r:.40}")
    try:
        return _READERS[kind](found)
    except LocalProtocolError as error:
        raise LocalProtocolError(error.clause, path + error.detail.removeprefix(kind)) from None


_OPTIONAL = ("env", "num_envs", "max_episode_steps", "client")


@dataclass(frozen=True)
class Declaration:
    """What a client declares in the first infer of a connection.

    Attributes:
        action: The action space.
        env: The env's id.
        num_envs: How many envs the client runs.
        max_episode_steps: Where its episodes are truncated.
        client: The client's place in a deterministic run.
    """

    action: ActionSpace
    env: str | None = None
    num_envs: int | None = None
    max_episode_steps: int | None = None
    client: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.action, ActionSpace):
            raise LocalProtocolError(_CLAUSE, f"spaces.action: expected an action space, got {describe(self.action)}")
        if self.env is not None and not isinstance(self.env, str):
            raise mismatch("10.2 spaces/env", "spaces.env", "str", self.env)
        for name, least in (("num_envs", 1), ("max_episode_steps", 1), ("client", -(2**53))):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, read_count(value, f"spaces.{name}", f"10.2 spaces/{name}", least))

    def to_wire(self) -> dict[str, Any]:
        """The declaration as it travels; what is None is left out."""
        optional = {name: getattr(self, name) for name in _OPTIONAL}
        return {"action": self.action.to_wire()} | {k: v for k, v in optional.items() if v is not None}

    @classmethod
    @blame_peer
    def from_wire(cls, value: object, path: str) -> "Declaration":
        """Read the declaration that a peer sent at `path`.

        Raises:
            RemoteProtocolError: It is no declaration.
        """
        found = read_map(value, path, _CLAUSE)
        action = action_space_from_wire(read_key(found, "action", path, _CLAUSE), f"{path}.action")
        try:
            return cls(action, *(found.get(name) for name in _OPTIONAL))
        except LocalProtocolError as error:
            raise LocalProtocolError(error.clause, path + error.detail.removeprefix("spaces")) from None
