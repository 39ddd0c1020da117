"""An observation batch: images, states and text over one leading axis (SPEC 5.2)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from plugrl_protocol.codec.fields import describe, mismatch, read_closed_map, read_map
from plugrl_protocol.errors import LocalProtocolError, blame_peer, show_key

_KEYS = frozenset({"images", "states", "text"})
_CLAUSE = "5.2 observation/shape"
# A msgpack array of str is padded to the longest: one long string must not cost its length times the rows.
_MAX_PADDED_TEXT = 4 * 2**20


@dataclass(frozen=True, slots=True, eq=False)
class Observation:
    """n rows of observation, one an env. `len()` is n.

    Attributes:
        images: uint8[n,h,w,c] by name.
        states: Numeric [n,d] by name, float64 by convention.
        text: str[n], a NumPy unicode array; the constructor takes any sequence of str.

    Raises:
        LocalProtocolError: A field has another dtype or shape; the detail starts with `observation.<field>`.
    """

    images: Mapping[str, np.ndarray]
    states: Mapping[str, np.ndarray]
    text: np.ndarray

    def __post_init__(self) -> None:
        self._fill(self.images, self.states, self.text, "observation", None)

    def __len__(self) -> int:
        return len(self.text)

    def take(self, rows: slice | Sequence[int] | np.ndarray) -> "Observation":
        """The rows named by a slice, a list of ints, or an int or bool array; slices are views."""
        return _assemble(
            {name: image[rows] for name, image in self.images.items()},
            {name: state[rows] for name, state in self.states.items()},
            self.text[rows],
        )

    @staticmethod
    def concat(parts: Sequence["Observation"]) -> "Observation":
        """The rows of all parts, in order.

        Raises:
            LocalProtocolError: There are no parts, or they differ in names or in row shapes.
        """
        if not parts:
            raise LocalProtocolError(_CLAUSE, "observation: nothing to concatenate")
        first = parts[0]
        for part in parts[1:]:
            if part._row_shapes() != first._row_shapes():
                raise LocalProtocolError(
                    _CLAUSE, f"observation: cannot concatenate {first._row_shapes()} and {part._row_shapes()}"
                )
        return _assemble(
            {name: np.concatenate([part.images[name] for part in parts]) for name in first.images},
            {name: np.concatenate([part.states[name] for part in parts]) for name in first.states},
            np.concatenate([part.text for part in parts]),
        )

    def to_wire(self) -> dict[str, Any]:
        """The observation as it travels."""
        return {"images": dict(self.images), "states": dict(self.states), "text": self.text}

    @classmethod
    @blame_peer
    def from_wire(cls, value: object, path: str, rows: int) -> "Observation":
        """Read an observation of `rows` rows that a peer sent at `path`.

        Raises:
            RemoteProtocolError: It is not exactly that.
        """
        return cls.parse(value, path, rows)

    @classmethod
    def parse(cls, value: object, path: str, rows: int) -> "Observation":
        """As `from_wire`, with the error left to the caller to blame (LocalProtocolError)."""
        found = read_closed_map(value, _KEYS, path, "5.2 observation/keys")
        observation = object.__new__(cls)
        observation._fill(found["images"], found["states"], found["text"], path, rows)
        return observation

    def wrong_rows(self, rows: int, path: str) -> LocalProtocolError:
        """The error where a message names another number of rows."""
        return LocalProtocolError(_CLAUSE, f"{path}: expected {rows} rows, got {len(self)}")

    def _row_shapes(self) -> dict[str, tuple[int, ...]]:
        named = [(f"images.{name}", image) for name, image in self.images.items()]
        named += [(f"states.{name}", state) for name, state in self.states.items()]
        return {name: array.shape[1:] for name, array in sorted(named)}

    def _fill(self, images: object, states: object, text: object, path: str, rows: int | None) -> None:
        """Validate and set all fields; `rows` None takes the row count from the text."""
        parsed_text = _read_text(text, rows, f"{path}.text")
        rows = len(parsed_text)
        set_field = object.__setattr__
        set_field(self, "images", _read_arrays(images, "u", 4, rows, f"{path}.images"))
        set_field(self, "states", _read_arrays(states, "iuf", 2, rows, f"{path}.states"))
        set_field(self, "text", parsed_text)


def _assemble(images: dict[str, np.ndarray], states: dict[str, np.ndarray], text: np.ndarray) -> Observation:
    """An observation of parts that are known to be valid."""
    observation = object.__new__(Observation)
    for name, value in (("images", images), ("states", states), ("text", text)):
        object.__setattr__(observation, name, value)
    return observation


def _read_arrays(value: object, kinds: str, ndim: int, rows: int, path: str) -> dict[str, np.ndarray]:
    arrays = {}
    for name, array in read_map(value, path, "5.2 observation/keys").items():
        if not isinstance(array, np.ndarray) or array.ndim != ndim or array.dtype.kind not in kinds:
            raise _wrong_array(array, ndim, rows, f"{path}.{show_key(name)}")
        if len(array) != rows or (ndim == 4 and array.itemsize != 1):
            raise _wrong_array(array, ndim, rows, f"{path}.{show_key(name)}")
        arrays[name] = array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
    return arrays


def _wrong_array(value: object, ndim: int, rows: int, path: str) -> LocalProtocolError:
    if ndim == 2:
        return mismatch(_CLAUSE, path, f"float[{rows},d]", value)
    return mismatch(_CLAUSE, path, f"uint8[{rows},h,w,c]", value, exact=True)


def _read_text(value: object, rows: int | None, path: str) -> np.ndarray:
    """A NumPy unicode array or a sequence of str (SPEC 3.4), as the former; `rows` None takes any number."""
    clause, expected = "3.4 observation/text", f"str[{'n' if rows is None else rows}]"
    if isinstance(value, (list, tuple)):
        value = _pad(value, clause, path, expected)
    if not isinstance(value, np.ndarray) or value.dtype.kind != "U" or value.ndim != 1:
        raise mismatch(clause, path, expected, value)
    if rows is not None and len(value) != rows:
        raise mismatch(clause, path, expected, value)
    return value if value.dtype.isnative else value.astype(value.dtype.newbyteorder("="))


def _pad(texts: Sequence[object], clause: str, path: str, expected: str) -> np.ndarray:
    longest = 0
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise LocalProtocolError(clause, f"{path}: expected {expected}, got {describe(text)} in row {row}")
        longest = max(longest, len(text))
    if 4 * longest * len(texts) > _MAX_PADDED_TEXT:
        raise LocalProtocolError(
            clause, f"{path}: {len(texts)} strings padded to {longest} characters are over {_MAX_PADDED_TEXT} bytes"
        )
    return np.array(texts, dtype=np.str_)
