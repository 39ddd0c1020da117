"""Which of an environment's observations a foreign policy reads under which of its own names."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from plugrl_server.common.config_error import ConfigError


@dataclasses.dataclass(frozen=True)
class KeyMap:
    """The foreign policy's names and ours.

    Attributes:
        sources: Its name -> our names: one image, or states that are put side by side.
    """

    sources: dict[str, tuple[str, ...]]

    @staticmethod
    def parse(entries: Sequence[str], flag: str = "--policy.key-map") -> KeyMap:
        """Read entries such as `observation/state=position+gripper`: its name, and our names joined by `+`.

        Raises:
            ConfigError: One is not of this form, or a name comes twice; the text names the flag.
        """
        sources: dict[str, tuple[str, ...]] = {}
        for entry in entries:
            theirs, _, ours = entry.partition("=")
            names = tuple(name.strip() for name in ours.split("+"))
            theirs = theirs.strip()
            if not theirs or not all(names):
                raise ConfigError(f"{flag} {entry}: expected THEIR_NAME=OUR_NAME, or THEIR_NAME=STATE+STATE.")
            if theirs in sources:
                raise ConfigError(f"{flag}: {theirs} comes twice.")
            sources[theirs] = names
        return KeyMap(sources)

    def problem(self, obs: dict[str, Any]) -> str | None:
        """Return what is wrong with an observation for this map, None when all of it is there."""
        images, states = obs["images"], obs["states"]
        for theirs, names in self.sources.items():
            if lacking := [name for name in names if name not in images and name not in states]:
                there = ", ".join([*sorted(images), *sorted(states)]) or "none"
                return f"observation lacks {', '.join(lacking)} (for {theirs}, --policy.key-map); sent: {there}"
            if len(names) > 1 and (pictures := [name for name in names if name not in states]):
                return f"{', '.join(pictures)} is an image, {theirs} joins states (--policy.key-map)"
        return None

    def read(self, obs: dict[str, Any]) -> dict[str, np.ndarray]:
        """Return the observation by its names: images u1[n, h, w, c], states [n, d]. An empty map keeps our names."""
        images, states = obs["images"], obs["states"]
        if not self.sources:
            return {**states, **images}
        return {theirs: _gather(images, states, names) for theirs, names in self.sources.items()}


def _gather(images: dict[str, np.ndarray], states: dict[str, np.ndarray], names: tuple[str, ...]) -> np.ndarray:
    if len(names) > 1:
        return np.concatenate([states[name] for name in names], axis=1)
    (name,) = names
    return states[name] if name in states else images[name]
