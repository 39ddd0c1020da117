"""Signs of the known mistakes in an algorithm of one's own, each told once with its remedy.

Symptoms, causes and remedies are those of the questions in docs/algorithms/custom-algorithm.md.
Nothing here acts: the trainer says what happened, and the serving side hands the texts to whoever watches the run.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from plugrl_server.common.checkpoint_manager import Checkpoint

LEARNS_IN_A_ROW = 100
"""Learn steps without an inference between them that are no longer taken for catching up."""
SLOW_LEARNS_IN_A_ROW, SLOW_SECONDS = 20, 60.0
"""The same for learn steps that take long: so many of them, over so many seconds."""
EPISODES_WITHOUT_RECORD = 100
"""Stored episodes of which none was recorded, before it is said without waiting for a learn step."""

LEARNS_ON = (
    "the algorithm learns again and again without inference: should_learn() is still true after learn(). "
    "learn_impl() or post_learn() must clear the buffer, or advance the counter that should_learn() depends on."
)
SAVES_ON = (
    "a checkpoint is written on every turn: should_save() is still true after create_checkpoint(). "
    "create_checkpoint() must note what has been saved."
)
ROLLOUT_ZERO = (
    "rollout/* stays 0: episodes ended, but feedback() never calls record_episode_metrics(). Call "
    'record_episode_metrics(info["episode"]) for every frame that ends an episode.'
)
ROLLOUT_PART = (
    "rollout/* misses the episodes that ended in discarded frames: the overridden discard_feedback() does not call "
    "super().discard_feedback(...)."
)


class Symptoms:
    """Watches one algorithm.

    Attributes:
        learns_in_a_row: Learn steps since the last inference; an inference sets it to 0.
    """

    def __init__(self) -> None:
        self.learns_in_a_row = 0
        self._seconds = 0.0
        self._stored_episodes = self._discarded_episodes = self._recorded_of_discarded = 0
        self._told: set[str] = set()
        self._due: list[str] = []

    def tell(self, text: str) -> None:
        """Put a text on the list to be said, unless it was there before."""
        if text not in self._told:
            self._told.add(text)
            self._due.append(text)

    def drain(self) -> list[str]:
        """Return what is to be said since the last call."""
        due, self._due = self._due, []
        return due

    def learned(self, seconds: float, recorded: int) -> None:
        """A learn step ended.

        Args:
            seconds: How long it took.
            recorded: Episodes that the algorithm has recorded so far (`EpisodeMetrics.recorded`).
        """
        self._seconds = seconds + (self._seconds if self.learns_in_a_row else 0.0)
        self.learns_in_a_row += 1
        slow = self.learns_in_a_row >= SLOW_LEARNS_IN_A_ROW and self._seconds >= SLOW_SECONDS
        if slow or self.learns_in_a_row >= LEARNS_IN_A_ROW:
            self.tell(LEARNS_ON)
        self._check_stored(recorded, enough=1)

    def saved(self, *, wants_more: bool) -> None:
        """A checkpoint was written; `wants_more` is what `should_save()` says right after it."""
        if wants_more:
            self.tell(SAVES_ON)

    def stored_episodes(self, count: int, recorded: int) -> None:
        """So many episodes ended in stored frames whose `info` had figures, `recorded` so far in all."""
        self._stored_episodes += count
        self._check_stored(recorded, enough=EPISODES_WITHOUT_RECORD)  # it may record them in its learn step

    def discarded_episodes(self, count: int, newly_recorded: int) -> None:
        """So many ended in discarded frames, of which the call of `discard_feedback` recorded `newly_recorded`."""
        self._discarded_episodes += count
        self._recorded_of_discarded += newly_recorded
        if self._discarded_episodes and not self._recorded_of_discarded:
            self.tell(ROLLOUT_PART)

    def _check_stored(self, recorded: int, enough: int) -> None:
        if self._stored_episodes >= enough and recorded <= self._recorded_of_discarded:
            self.tell(ROLLOUT_ZERO)


# Before and at the start of a run --------------------------------------------------------------------------------


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
