"""Signs of the known mistakes in an algorithm of one's own, each told once with its remedy.

Symptoms, causes and remedies are those of the questions in docs/algorithms/custom-algorithm.md.
Nothing here acts: the trainer says what happened, and the serving side hands the texts to whoever watches the run.
"""

from __future__ import annotations

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
