"""Configuration dataclasses as JSON and back."""

from __future__ import annotations

import dataclasses
import enum
import math
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar, Union

import numpy as np

Config = TypeVar("Config")

SECRETS = ("openpi_api_key",)
"""Fields that are written nowhere."""

LEFT_OUT = ("action_space", *SECRETS)
"""Fields that are not recorded; those that a client's declaration fills, config.json keeps under `declaration`."""


class RecordError(Exception):
    """A record in a run folder cannot be used; the text names the part and what was expected."""


def json_value(value: Any) -> Any:
    """`value` in JSON's terms: NaN and infinities become texts, an unknown object becomes its repr."""
    if isinstance(value, (np.generic, enum.Enum)):
        return value.name if isinstance(value, enum.Enum) else json_value(value.item())
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else "NaN" if math.isnan(value) else f"{'-' * (value < 0)}Infinity"
    if isinstance(value, Mapping):
        return {str(key): json_value(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_value(item) for item in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return config_to_json(value)
    return str(value) if isinstance(value, Path) else repr(value)


def config_to_json(config: Any) -> dict[str, Any]:
    """Every field of a configuration dataclass as JSON, those of `LEFT_OUT` excepted."""
    fields = (field.name for field in dataclasses.fields(config))
    return {name: json_value(getattr(config, name)) for name in fields if name not in LEFT_OUT}


def config_from_json(default: Config, values: Mapping[str, Any]) -> Config:
    """A copy of `default` with the recorded values, each converted to the type of its field.

    Args:
        default: An instance of the configuration's dataclass.
        values: What `config_to_json` wrote.

    Raises:
        RecordError: A recorded field does not exist any more, or its value does not fit the field's type.
    """
    kind: Any = type(default)
    known = {field.name for field in dataclasses.fields(kind)} - set(LEFT_OUT)
    unknown = sorted(set(values) - known)
    if unknown:
        raise RecordError(f"{kind.__name__} has no field {', '.join(unknown)}; it was recorded by another version")
    hints = typing.get_type_hints(kind)
    changes = {name: _convert(value, hints[name], name) for name, value in values.items()}
    return dataclasses.replace(default, **changes)  # type: ignore[type-var]


def _convert(value: Any, hint: Any, path: str) -> Any:
    origin = typing.get_origin(hint)
    if origin in (Union, types.UnionType):
        return _convert_union(value, typing.get_args(hint), path)
    if origin is Literal:
        return _expect(value in typing.get_args(hint), value, value, hint, path)
    if origin in (tuple, list):
        return _convert_sequence(value, origin, typing.get_args(hint), path)
    if origin is dict:
        _expect(isinstance(value, Mapping), value, value, hint, path)
        item = (typing.get_args(hint) or (Any, Any))[1]
        return {key: _convert(entry, item, f"{path}.{key}") for key, entry in value.items()}
    return _convert_plain(value, hint, path)


def _convert_union(value: Any, members: tuple[Any, ...], path: str) -> Any:
    for member in members:
        try:
            return _convert(value, member, path)
        except RecordError:
            continue
    raise RecordError(f"{path}: expected {' or '.join(map(_named, members))}, got {value!r}")


def _convert_sequence(value: Any, kind: Any, items: tuple[Any, ...], path: str) -> Any:
    _expect(isinstance(value, list), value, value, kind, path)
    if kind is tuple and items and items[-1] is not Ellipsis:
        _expect(len(items) == len(value), value, value, f"{len(items)} values", path)
        hints = list(items)
    else:
        hints = [items[0] if items else Any] * len(value)
    return kind(_convert(entry, hint, f"{path}[{i}]") for i, (entry, hint) in enumerate(zip(value, hints, strict=True)))


def _convert_plain(value: Any, hint: Any, path: str) -> Any:
    if hint is Any:
        return value
    if hint is None or hint is type(None):
        return _expect(value is None, value, None, "None", path)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        _expect(isinstance(value, Mapping), value, value, hint, path)
        return config_from_json(hint(), value)
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return _expect(value in hint.__members__, value, None, hint, path) or hint[value]
    if hint is Path:
        return Path(_expect(isinstance(value, str), value, value, hint, path))
    if hint is float:
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return float(_expect(number or value in ("NaN", "Infinity", "-Infinity"), value, value, hint, path))
    if hint in (bool, int, str):
        return _expect(type(value) is hint, value, value, hint, path)
    raise RecordError(f"{path}: a value of type {hint} cannot be restored; set it by its flag")


def _expect(fits: bool, value: Any, result: Any, hint: Any, path: str) -> Any:
    if not fits:
        raise RecordError(f"{path}: expected {_named(hint)}, got {value!r}")
    return result


def _named(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) else str(hint)
