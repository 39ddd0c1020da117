"""What differs between a recorded configuration and one of now."""

from __future__ import annotations

from typing import Any

from plugrl_server.record.config_json import config_to_json
from plugrl_server.record.run_record import Part


def changes(recorded: Part, config: Any, prefix: str) -> list[str]:
    """Flags whose values differ from the recorded ones: `--algo.gamma 0.9 (was 0.99)`."""
    return _changes(_flat(recorded.config), _flat(config_to_json(config)), f"--{prefix}.")


def run_changes(recorded: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """The run's own flags whose values of now differ from the recorded ones."""
    return _changes(_flat(recorded), _flat(now), "--")


def _changes(before: dict[str, Any], now: dict[str, Any], prefix: str) -> list[str]:
    names = [name for name in now if name in before and now[name] != before[name]]
    return [f"{prefix}{name.replace('_', '-')} {_shown(now[name])} (was {_shown(before[name])})" for name in names]


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return flat


def _shown(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
