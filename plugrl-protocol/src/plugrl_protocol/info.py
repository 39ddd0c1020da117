"""The `info` of a feedback, split into rows (SPEC 5.4 info)."""

from collections.abc import Mapping, Sequence
from typing import Any, overload

import numpy as np

from plugrl_protocol.codec.fields import describe, mismatch
from plugrl_protocol.errors import LocalProtocolError

_EPISODE_KINDS = {"r": ("iuf", "float"), "l": ("iu", "int"), "s": ("b", "bool"), "mask": ("b", "bool")}


class InfoRows(Sequence[dict[str, Any]]):
    """The rows of an info map, one map a row, each split when it is read.

    An array whose leading axis is `rows`, at the top level or one level down, gives each row its element; everything
    else is the same for every row. Elements of one-dimensional arrays are Python scalars.

    Raises:
        LocalProtocolError: `rows` > 1 and a non-empty info holds no array of that length, so it cannot be split; or
            `episode` is not as SPEC 5.4 has it.
    """

    def __init__(self, info: Mapping[str, Any], rows: int, path: str = "feedback.data.info") -> None:
        self._info = info
        self._rows = rows
        if not info:
            return
        if "episode" in info:
            _check_episode(info["episode"], rows, f"{path}.episode")
        if rows > 1 and not any(self._is_split(value) for value in _leaves(info)):
            raise LocalProtocolError(
                "5.4 feedback/info", f"{path}: expected an array of {rows} rows to split it by, got none"
            )

    def __len__(self) -> int:
        return self._rows

    @overload
    def __getitem__(self, row: int) -> dict[str, Any]: ...

    @overload
    def __getitem__(self, row: slice) -> list[dict[str, Any]]: ...

    def __getitem__(self, row: int | slice) -> dict[str, Any] | list[dict[str, Any]]:
        if isinstance(row, slice):
            return [self._row(index) for index in range(*row.indices(self._rows))]
        index = row + self._rows if row < 0 else row
        if not 0 <= index < self._rows:
            raise IndexError(f"row {row} of {self._rows}")
        return self._row(index)

    def _row(self, row: int) -> dict[str, Any]:
        return {
            name: {key: self._pick(item, row) for key, item in value.items()}
            if isinstance(value, Mapping)
            else self._pick(value, row)
            for name, value in self._info.items()
        }

    def _pick(self, value: Any, row: int) -> Any:
        if not self._is_split(value):
            return value
        return value[row].item() if value.ndim == 1 else value[row]

    def _is_split(self, value: object) -> bool:
        return isinstance(value, np.ndarray) and value.ndim > 0 and len(value) == self._rows


def _leaves(info: Mapping[str, Any]) -> list[Any]:
    """The values at the top level and one level down."""
    leaves: list[Any] = []
    for value in info.values():
        leaves.extend(value.values() if isinstance(value, Mapping) else (value,))
    return leaves


def _check_episode(episode: object, rows: int, path: str) -> None:
    if not isinstance(episode, Mapping):
        raise mismatch("5.4 feedback/episode", path, "map", episode)
    for key, (kinds, name) in _EPISODE_KINDS.items():
        if key not in episode:
            continue
        value = np.asarray(episode[key]) if _is_scalar(episode[key]) else episode[key]
        if not isinstance(value, np.ndarray) or value.dtype.kind not in kinds or value.shape not in ((rows,), ()):
            raise LocalProtocolError(
                "5.4 feedback/episode", f"{path}.{key}: expected {name}[{rows}], got {describe(episode[key])}"
            )


def _is_scalar(value: object) -> bool:
    return isinstance(value, (bool, int, float, np.generic))
