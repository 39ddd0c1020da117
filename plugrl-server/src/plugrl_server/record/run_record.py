"""What `config.json` in a run folder holds, written and read back.

The file names the policy and the algorithm (uid, variant, module, class, every configuration value), the flags of
the run, the seed, the versions, the command, and the spaces that the first client declared, so that the run can be
resumed and its policy loaded without asking anyone again. It is plain JSON: numbers that JSON lacks are the texts
`NaN`, `Infinity` and `-Infinity`, arrays are maps of `dtype`, `shape` and `data`.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from plugrl_protocol.errors import ProtocolError
from plugrl_protocol.observation import Observation
from plugrl_protocol.spaces import Declaration

from plugrl_server.record.config_json import RecordError, json_value

CONFIG_FILE = "config.json"
PACKAGES = ("plugrl-server", "plugrl-protocol", "torch", "numpy", "websockets")


@dataclasses.dataclass(frozen=True)
class Part:
    """The policy or the algorithm of a run.

    Attributes:
        uid: Registered name.
        variant: Name of the configuration variant it started from.
        module: Module that defines the class; None while nothing has imported it.
        class_name: Qualified name of the class in that module.
        config: Every configuration value as JSON, dimensions filled in once a client declared them.
    """

    uid: str
    variant: str
    module: str | None
    class_name: str | None
    config: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """The map under `policy` or `algorithm`."""
        head = {"uid": self.uid, "variant": self.variant, "module": self.module, "class": self.class_name}
        return {**head, "config": self.config}

    @staticmethod
    def from_json(value: Any, path: str) -> Part:
        """Reads the map back.

        Raises:
            RecordError: A key is missing or has the wrong type.
        """
        fields = _mapping(value, path)
        uid, variant = (_typed(fields, key, str, path) for key in ("uid", "variant"))
        module, class_name = (_typed(fields, key, str | None, path) for key in ("module", "class"))
        return Part(uid, variant, module, class_name, dict(_mapping(fields.get("config"), f"{path}.config")))


@dataclasses.dataclass(frozen=True)
class RunRecord:
    """Everything `config.json` says.

    Attributes:
        policy: The policy.
        algorithm: The algorithm.
        run: Flags of the run by field name, the API key left out.
        seed: Seed of Python, NumPy and Torch.
        versions: Version of Python and of each package that matters, by name.
        command: The words of the command line, the API key left out.
        declaration: Spaces that the first client declared, or None.
        observation: One all-zero row with the names, widths and dtypes of that client's observations, or None.
    """

    policy: Part
    algorithm: Part
    run: dict[str, Any]
    seed: int
    versions: dict[str, str]
    command: list[str]
    declaration: Declaration | None = None
    observation: Observation | None = None

    def to_json(self) -> dict[str, Any]:
        """The content of `config.json`."""
        return {
            "policy": self.policy.to_json(),
            "algorithm": self.algorithm.to_json(),
            "run": json_value(self.run),
            "seed": self.seed,
            "versions": self.versions,
            "declaration": None if self.declaration is None else _arrays_to_json(self.declaration.to_wire()),
            "observation": None if self.observation is None else _layout(self.observation),
            "command": self.command,
        }

    @staticmethod
    def from_json(value: Any) -> RunRecord:
        """Reads the content of `config.json`.

        Raises:
            RecordError: Something is missing or has the wrong type; the message names it.
        """
        fields = _mapping(value, "config.json")
        declared, seen = fields.get("declaration"), fields.get("observation")
        return RunRecord(
            policy=Part.from_json(fields.get("policy"), "policy"),
            algorithm=Part.from_json(fields.get("algorithm"), "algorithm"),
            run=dict(_mapping(fields.get("run"), "run")),
            seed=_typed(fields, "seed", int, "config.json"),
            versions=dict(_mapping(fields.get("versions"), "versions")),
            command=list(_typed(fields, "command", list, "config.json")),
            declaration=None if declared is None else _declaration(declared),
            observation=None if seen is None else _zero_row(seen),
        )


def read_record(run_dir: Path) -> RunRecord:
    """Reads `config.json` of a run folder.

    Raises:
        RecordError: The file is missing, is not JSON, or lacks something.
    """
    file = run_dir / CONFIG_FILE
    try:
        return RunRecord.from_json(json.loads(file.read_text(encoding="utf-8")))
    except OSError as error:
        raise RecordError(f"{file}: cannot be read ({error.strerror or error})") from None
    except ValueError as error:
        raise RecordError(f"{file}: not JSON ({error})") from None
    except RecordError as error:
        raise RecordError(f"{file}: {error}") from None


def versions() -> dict[str, str]:
    """Versions of Python and of the packages a run depends on; a package that is not installed is left out."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _layout(observation: Observation) -> dict[str, Any]:
    def row(array: np.ndarray[Any, Any]) -> dict[str, Any]:
        return {"dtype": array.dtype.str, "shape": list(array.shape[1:])}

    return {
        "images": {name: row(image) for name, image in observation.images.items()},
        "states": {name: row(state) for name, state in observation.states.items()},
    }


def _zero_row(layout: Any) -> Observation:
    def zeros(group: str) -> dict[str, np.ndarray[Any, Any]]:
        rows = _mapping(_mapping(layout, "observation").get(group), f"observation.{group}")
        return {name: _zeros(row, f"observation.{group}.{name}") for name, row in rows.items()}

    try:
        return Observation(images=zeros("images"), states=zeros("states"), text=np.array([""]))
    except (TypeError, ValueError, ProtocolError) as error:
        raise RecordError(f"observation: {error}") from None


def _zeros(row: Any, path: str) -> np.ndarray[Any, Any]:
    fields = _mapping(row, path)
    return np.zeros((1, *_typed(fields, "shape", list, path)), np.dtype(_typed(fields, "dtype", str, path)))


def _declaration(value: Any) -> Declaration:
    try:
        return Declaration.from_wire(_arrays_from_json(value), "declaration")
    except (TypeError, ValueError, ProtocolError) as error:
        raise RecordError(str(error)) from None


def _arrays_to_json(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        data = json_value(value.ravel().tolist())
        return {"dtype": value.dtype.str, "shape": list(value.shape), "data": data}
    if isinstance(value, Mapping):
        return {str(key): _arrays_to_json(item) for key, item in value.items()}
    return json_value(value)


def _arrays_from_json(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    if set(value) != {"dtype", "shape", "data"}:
        return {key: _arrays_from_json(item) for key, item in value.items()}
    dtype = np.dtype(value["dtype"])
    numbers = [float(x) if isinstance(x, str) else x for x in value["data"]]
    return np.array(numbers, dtype).reshape(value["shape"])


def _mapping(value: Any, path: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise RecordError(f"{path}: expected a map, got {_kind(value)}")
    return value


def _typed(fields: Mapping[str, Any], key: str, kind: Any, path: str) -> Any:
    value = fields.get(key)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise RecordError(f"{path}.{key}: expected {getattr(kind, '__name__', kind)}, got {_kind(value)}")
    return value


def _kind(value: Any) -> str:
    return "nothing" if value is None else type(value).__name__
