"""Buffers that hold the observations of n Gymnasium environments as they are sent; `entries` has the rules."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import batch_space, iterate

from plugrl_env_client.envs.base_env import EnvError, Observation
from plugrl_env_client.envs.gym_adapter.entries import entries


class Layout:
    """Buffers for the observations of n envs, filled in place: what an env returns is copied once.

    Args:
        space: the observation space of one env.
        num_envs: n.
        state_keys: names of the states to send, in order; None: all.
        image_keys: names of the images to send, in order; None: all.

    Raises:
        EnvError: the space cannot be sent, or has no such entries.
    """

    def __init__(
        self,
        space: "spaces.Space[Any]",
        num_envs: int,
        *,
        state_keys: Sequence[str] | None = None,
        image_keys: Sequence[str] | None = None,
    ) -> None:
        self._num_envs = num_envs
        self._entries = entries(space, state_keys=state_keys, image_keys=image_keys)
        self._has_text = any(entry.kind == "text" for entry in self._entries)
        self._rows = [entry.allocate(num_envs) for entry in self._entries]
        self._targets = [  # the same memory, shaped like what the envs return
            rows if entry.view is None else entry.view(rows)
            for entry, rows in zip(self._entries, self._rows, strict=True)
        ]
        self._batched = [batch_space(entry.space, num_envs) for entry in self._entries]
        self._observation = self._build()
        # The common case, one array, is written without a walk over entries.
        alone = len(self._entries) == 1 and self._entries[0].view is not None and not self._entries[0].path
        self._only = self._targets[0] if alone else None

    @property
    def observation(self) -> Observation:
        """The observations of all n envs as last written: views on the buffers."""
        return self._build() if self._has_text else self._observation

    def check(self, value: Any, *, batched: bool = False) -> None:
        """Compare what one env returned with its observation space; NumPy might stretch or cut it to fit.

        Args:
            value: the observation of one env.
            batched: of all n instead, from a vector env.

        Raises:
            EnvError: an entry is missing, has another shape, or is no image of whole numbers or no numbers at all.
        """
        for entry, target in zip(self._entries, self._targets, strict=True):
            try:
                own = entry.of(value)
            except (KeyError, IndexError, TypeError):
                raise EnvError(f"the env's observation has no {entry.name}, which its space promises") from None
            if entry.view is None:
                continue
            promised = target.shape if batched else target.shape[1:]
            if np.shape(own) != promised:
                raise EnvError(f"the env observes {entry.name} of shape {np.shape(own)}, its space promises {promised}")
            dtype = np.asarray(own).dtype
            if dtype.kind not in ("biu" if entry.kind == "images" else "biuf"):
                raise EnvError(f"the env observes {entry.name} of {dtype}, its space promises {entry.space.dtype}")

    def write(self, row: int, value: Any) -> None:
        """Set env `row`'s observation from what that env returned."""
        if self._only is not None:
            self._only[row] = value
            return
        for entry, target in zip(self._entries, self._targets, strict=True):
            own = entry.of(value)
            target[row] = own if entry.encode is None else entry.encode(own)

    def write_batch(self, batch: Any) -> None:
        """Set all n observations from what a Gymnasium vector env returned."""
        if self._only is not None:
            self._only[...] = batch
            return
        for entry, target, batched in zip(self._entries, self._targets, self._batched, strict=True):
            values = entry.of(batch)
            if entry.encode is None:
                target[...] = values
            else:
                split = values if entry.kind == "text" else iterate(batched, values)
                for row, value in enumerate(split):
                    target[row] = entry.encode(value)

    def row(self, row: int) -> list[Any]:
        """A copy of one env's observation, for `put` and `shows`."""
        return [rows[row] if isinstance(rows, list) else rows[row].copy() for rows in self._rows]

    def put(self, row: int, saved: list[Any]) -> None:
        """Show what `row` returned for this env."""
        for rows, value in zip(self._rows, saved, strict=True):
            rows[row] = value

    def shows(self, row: int, saved: list[Any]) -> bool:
        """Whether the env still shows what `row` returned for it."""
        return all(
            rows[row] == value if isinstance(rows, list) else np.array_equal(rows[row], value, equal_nan=True)
            for rows, value in zip(self._rows, saved, strict=True)
        )

    def _build(self) -> Observation:
        named: dict[str, dict[str, Any]] = {"images": {}, "states": {}, "text": {}}
        for entry, rows in zip(self._entries, self._rows, strict=True):
            named[entry.kind][entry.name] = rows
        text = next(iter(named["text"].values()), [""] * self._num_envs)
        return Observation(images=named["images"], states=named["states"], text=np.array(text, dtype=np.str_))
