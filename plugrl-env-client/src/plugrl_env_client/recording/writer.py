"""The writer's thread: puts episodes together, and has every format write those that are whole."""

import logging
from collections.abc import Callable, Sequence

from plugrl_env_client.recording.counts import RecordingCounts
from plugrl_env_client.recording.durable import Scratch
from plugrl_env_client.recording.episode import Episode, EpisodeInTheMaking, Layout, Rows
from plugrl_env_client.recording.formats.episode_format import EpisodeFormat, Finished, Sink
from plugrl_env_client.recording.intake import Abandoned, Begun, Intake, Stepped

_TOGETHER = 64  # finished episodes that are written in one go, at most

_logger = logging.getLogger(__name__)


class _Open:
    """An episode under way, with every format's part of it."""

    def __init__(self, making: EpisodeInTheMaking, sinks: Sequence[Sink]) -> None:
        self.making = making
        self.sinks = sinks

    def show(self, rows: Rows, row: int) -> None:
        images = self.making.show(rows, row)
        for sink in self.sinks:
            sink.frame(images)

    def discard(self) -> None:
        self.making.close()
        for sink in self.sinks:
            sink.discard()


class Writer:
    """Takes what comes in until nothing more does.

    Args:
        intake: where it comes from.
        formats: what to write; opened.
        layout: what the envs show.
        scratch: where images wait until their episode is over.
        counts: kept up to date.
        seed_of: the seed of an env's first episode, by the env's index.
    """

    def __init__(
        self,
        intake: Intake,
        formats: Sequence[EpisodeFormat],
        layout: Layout,
        scratch: Scratch,
        counts: RecordingCounts,
        seed_of: Callable[[int], int],
    ) -> None:
        self._intake = intake
        self._formats = formats
        self._layout = layout
        self._spool = scratch.path if any(form.wants_arrays for form in formats) else None
        self._counts = counts
        self._seed_of = seed_of
        self._open: dict[int, _Open] = {}
        self._finished: list[tuple[Episode, _Open]] = []

    def run(self) -> None:
        """Until everything is written, or something cannot be."""
        try:
            while (item := self._intake.take(wait=not self._finished)) is not None or self._finished:
                if isinstance(item, Begun):
                    self._begin(item)
                elif isinstance(item, Stepped):
                    self._step(item)
                elif isinstance(item, Abandoned):
                    self._abandon(item)
                if item is None or len(self._finished) >= _TOGETHER:
                    self._commit()
        except Exception as err:  # whatever a format's library raises: the run goes on
            self._fail(err)
        finally:
            for unfinished in [*self._open.values(), *(opened for _, opened in self._finished)]:
                _discard(unfinished)

    def _begin(self, begun: Begun) -> None:
        self._layout.check(begun.rows)
        for row, (env, number) in enumerate(zip(begun.envs.tolist(), begun.numbers.tolist(), strict=True)):
            seed = self._seed_of(env) if number == 0 else None
            making = EpisodeInTheMaking(env, number, seed, self._layout, self._spool)
            opened = self._open[env] = _Open(making, [form.begin() for form in self._formats])
            opened.show(begun.rows, row)

    def _step(self, stepped: Stepped) -> None:
        self._layout.check(stepped.rows)
        terminated, truncated = stepped.terminated.tolist(), stepped.truncated.tolist()
        rewards = stepped.rewards.tolist()
        for row, env in enumerate(stepped.envs.tolist()):
            opened = self._open[env]
            opened.making.step(stepped.actions[row], rewards[row], terminated[row], truncated[row])
            opened.show(stepped.rows, row)
            if terminated[row] or truncated[row]:
                if stepped.success is not None:
                    opened.making.success = bool(stepped.success[row])
                self._finished.append((opened.making.finish(), self._open.pop(env)))

    def _abandon(self, abandoned: Abandoned) -> None:
        for env in abandoned.envs.tolist():
            self._open.pop(env).discard()

    def _commit(self) -> None:
        size = 0
        for place, form in enumerate(self._formats):
            size += form.commit([Finished(episode, opened.sinks[place]) for episode, opened in self._finished])
        self._counts.episodes += len(self._finished)
        self._counts.frames += sum(len(episode) for episode, _ in self._finished)
        self._counts.size += size
        for _, opened in self._finished:
            opened.making.close()
        self._intake.safe(episode.env for episode, _ in self._finished)
        self._finished.clear()

    def _fail(self, err: Exception) -> None:
        self._counts.failure = f"{type(err).__name__}: {err}"
        _logger.warning("recording has ended, after %d episodes: %s", self._counts.episodes, self._counts.failure)
        _logger.debug("what went wrong", exc_info=err)
        self._intake.breaks()


def _discard(opened: _Open) -> None:
    try:
        opened.discard()
    except Exception as err:  # half a file cannot always be closed, and nobody wants it
        _logger.debug("an unfinished episode could not be put away: %s", err)
