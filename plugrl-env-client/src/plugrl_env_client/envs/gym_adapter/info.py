"""What of an env's info goes on the wire: success (`--env.success-keys`) and `--env.info-keys` (field lesson 18)."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from plugrl_env_client.envs.base_env import EnvError
from plugrl_env_client.envs.gym_flags import SUCCESS_KEYS

_logger = logging.getLogger(__name__)
_SENDABLE = "biufU"
_TAKEN = {
    "success": "is reported where an episode ends, as --env.success-keys says",
    "episode": "is what the client itself reports of an episode that ends",
}


class InfoReader:
    """Collects info values of n envs into arrays.

    An entry that an env leaves out is sent as zero (an empty string for text). An entry whose values are not numbers,
    booleans or strings, or do not have one shape, is dropped with one warning.

    Args:
        keys: entries to send.
        success_keys: entries that say whether an episode was a success; the first that any env has counts.

    Raises:
        EnvError: an entry of `keys` has a name that means something else on the wire.
    """

    def __init__(self, keys: Sequence[str] = (), success_keys: Sequence[str] = SUCCESS_KEYS) -> None:
        for key in keys:
            if key in _TAKEN:
                raise EnvError(f"--env.info-keys {key}: {key} {_TAKEN[key]}; expected another entry of the env's info")
        self.keys = tuple(keys)
        self.success_keys = tuple(success_keys)
        self._warned: set[str] = set()

    def read(self, infos: Sequence[Mapping[str, Any]], any_done: bool) -> dict[str, np.ndarray]:
        """What to tell of n envs' infos.

        Args:
            infos: each env's own info.
            any_done: whether an episode ended: only then success is looked for.

        Returns:
            The wanted entries, each [n, ...], and `success` bool[n] where an info speaks of it.
        """
        found = {key: rows for key in self.keys if (rows := self._rows(key, infos)) is not None}
        if any_done:
            for key in self.success_keys:
                if any(key in info for info in infos):
                    found["success"] = np.array([bool(np.all(info.get(key, False))) for info in infos])
                    break
        return found

    def drop(self, key: str, reason: str) -> None:
        """Say, once for each entry, that it is not sent."""
        if key not in self._warned:
            self._warned.add(key)
            _logger.warning("info entry %r is not sent: %s", key, reason)

    def _rows(self, key: str, infos: Sequence[Mapping[str, Any]]) -> np.ndarray | None:
        present = [info[key] for info in infos if key in info]
        if not present:
            return None
        blank = _as_array(present[0])
        if blank is None:
            self.drop(key, f"cannot send a {type(present[0]).__name__}")
            return None
        text = blank.dtype.kind == "U"
        rows = [_as_array(info[key]) if key in info else np.zeros_like(blank) for info in infos]
        if any(row is None or row.shape != blank.shape or (row.dtype.kind == "U") != text for row in rows):
            self.drop(key, "the envs' values differ in shape or kind")
            return None
        return np.stack([row for row in rows if row is not None])


def _as_array(value: Any) -> np.ndarray | None:
    if not isinstance(value, (bool, int, float, str, np.ndarray, np.generic, list, tuple)):
        return None
    try:
        array = np.asarray(value)
    except ValueError:  # a ragged list
        return None
    sendable = array.dtype.kind in _SENDABLE and (array.dtype.kind == "U" or array.dtype.itemsize <= 8)
    return array if sendable else None
