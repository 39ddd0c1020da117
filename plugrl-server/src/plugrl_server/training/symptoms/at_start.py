"""Mistakes that show before the first frame: flags that say the same twice, counters that a resumed run has lost."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from plugrl_server.common.checkpoint_manager import Checkpoint


def duplicate_flags(policy_config: Any, algo_config: Any) -> list[str]:
    """Return a text for each option that both configurations have: two flags, of which one has no effect."""
    fields = [
        {field.name for field in dataclasses.fields(config)} if dataclasses.is_dataclass(config) else set()
        for config in (policy_config, algo_config)
    ]
    return [
        f"--algo.{name} and --policy.{name} say the same thing twice: keep one of the two fields."
        for name in sorted(name.replace("_", "-") for name in fields[0] & fields[1])
    ]


def drifted_counters(algorithm: Any, checkpoint: Checkpoint) -> str | None:
    """Return what a restored algorithm would drift by, None where its counters are those of the checkpoint.

    Call it right after `load_checkpoint`: a checkpoint taken now must hold the same numbers, and there is nothing to
    save. The algorithm is left as it was.
    """
    attributes = dict(vars(algorithm))
    wants_save = bool(algorithm.should_save())
    again = algorithm.create_checkpoint()
    vars(algorithm).update(attributes)
    before, now = ({"step": part.step, **dict(_numbers(part.meta))} for part in (checkpoint, again))
    lost = (name for name, value in before.items() if now.get(name) != value)
    drifts = [f"{name} is {now.get(name, 'gone')}, was {before[name]}" for name in lost]
    if wants_save:
        drifts.append("should_save() is true right after a checkpoint")
    if not drifts:
        return None
    return (
        f"learning and saving drift after --resume ({'; '.join(drifts)}): keep every counter of the schedule in "
        f"Checkpoint.meta, and restore all of them in load_checkpoint()."
    )


def _numbers(tree: Any, path: str = "") -> Iterator[tuple[str, float]]:
    """Yield the counters of a checkpoint's meta by their paths; generators' states are none."""
    if isinstance(tree, Mapping):
        for key, value in tree.items():
            if "rng" not in str(key):
                yield from _numbers(value, f"{path}.{key}" if path else str(key))
    elif isinstance(tree, int | float) and tree == tree:  # not NaN
        yield path, tree
