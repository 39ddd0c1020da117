"""One process of a client: its share of the run, in one group or in several."""

import contextlib
import dataclasses
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from plugrl_env_client.envs.base_env import BaseEnv, EnvError
from plugrl_env_client.groups.group import Finished as Finished
from plugrl_env_client.groups.group import Group as Group
from plugrl_env_client.groups.group import Vital as Vital
from plugrl_env_client.groups.group import unwatched
from plugrl_env_client.groups.share import Share as Share
from plugrl_env_client.groups.share import shares as shares
from plugrl_env_client.groups.share import whole
from plugrl_env_client.groups.side_by_side import run_side_by_side
from plugrl_env_client.link.interrupts import Interrupts
from plugrl_env_client.observers import RolloutObserver
from plugrl_env_client.options import MAX_ENVS, Run
from plugrl_env_client.recording.recorder import Recorder
from plugrl_env_client.recording.recorder_options import RecordingFailedError
from plugrl_env_client.reporting.tally import Snapshot, nothing_yet
from plugrl_env_client.rollout import Outcome
from plugrl_env_client.viewer.viewer import Viewer

_logger = logging.getLogger(__name__)


def run_client(
    run: Run,
    share: Share,
    *,
    interrupts: Interrupts,
    watch: Callable[[Group], None] = unwatched,
    show: Callable[[Snapshot], None],
    interval: float,
    writing: Callable[[], None] = lambda: None,
) -> Finished:
    """Run one process's share to its end, in `run.options.num_groups` groups.

    Every failure is returned, with what was counted until then; so is that of envs that cannot be made.

    Args:
        run: the whole.
        share: what this process runs of it.
        interrupts: set when the user wants the client to end.
        watch: called with each group as soon as its envs are made.
        show: called with the counts every `interval` seconds.
        interval: in seconds.
        writing: called when all has been run, and what is recorded need only be written.
    """
    try:
        return _run(run, share, interrupts=interrupts, watch=watch, show=show, interval=interval, writing=writing)
    except EnvError as err:
        return Finished(Outcome.FAILED, nothing_yet(share.num_envs), str(err), final=True, usage=True)
    except Exception as err:  # an env's own failure: whoever wrote it needs the traceback
        if interrupts.requested:  # Ctrl-C also reaches the processes that an env may have
            return Finished(Outcome.INTERRUPTED, nothing_yet(share.num_envs))
        _logger.exception("%s failed", run.uid)
        return Finished(Outcome.FAILED, nothing_yet(share.num_envs), f"{run.uid} failed: {type(err).__name__}: {err}")


def _run(
    run: Run,
    share: Share,
    *,
    interrupts: Interrupts,
    watch: Callable[[Group], None],
    show: Callable[[Snapshot], None],
    interval: float,
    writing: Callable[[], None],
) -> Finished:
    groups = share.divided(run.options.num_groups)
    with _recorder(run, writing) as recorder, _viewer(run, share) as viewer:

        def observe(env: BaseEnv) -> Sequence[RolloutObserver]:
            recording = () if recorder is None else (recorder.observer(env),)
            return recording if viewer is None else (*recording, viewer.observer())

        def show_all(snapshot: Snapshot) -> None:
            show(_with_recording(snapshot, recorder))

        if len(groups) > 1:
            finished = run_side_by_side(
                run, groups, interrupts=interrupts, observe=observe, watch=watch, show=show_all, interval=interval
            )
        else:
            group = Group(run, share, interrupts, observe)
            watch(group)
            finished = group.run(_Every(interval, group.snapshot, show_all))
    return finished if recorder is None else _recorded(finished, recorder)


def run_alone(run: Run, *, interrupts: Interrupts, show: Callable[[Snapshot], None], interval: float) -> Finished:
    """Run everything in this process: `run_client` with the whole for a share."""
    return run_client(run, whole(run.options), interrupts=interrupts, show=show, interval=interval)


@contextlib.contextmanager
def _recorder(run: Run, writing: Callable[[], None]) -> Iterator[Recorder | None]:
    """This process's recorder, where something is to be recorded; at the end everything is written."""
    options = run.options
    if not options.recorder.on:
        yield None
        return
    folder = options.recorder.folder or (options.folder or Path()) / "recording"
    pace = options.runner.fps
    fps = options.recorder.fps or (None if pace is None else max(round(pace), 1))
    chosen = dataclasses.replace(options.recorder, fps=fps)
    seed = run.seed + run.offset * MAX_ENVS
    recorder = Recorder(chosen, folder, seed=seed, patience=options.hang_seconds)
    try:
        yield recorder
    finally:
        writing()
        recorder.close()


@contextlib.contextmanager
def _viewer(run: Run, share: Share) -> Iterator[Viewer | None]:
    """This process's page, where somebody wants to look."""
    port = run.options.viewer
    if port is None:
        yield None
        return
    viewer = Viewer(f"{run.uid}: {share.envs}", port + share.index)
    try:
        yield viewer
    finally:
        viewer.close()


def _recorded(finished: Finished, recorder: Recorder) -> Finished:
    """How the run ended, with what was recorded; it has failed where that was required and has."""
    finished = dataclasses.replace(finished, snapshot=_with_recording(finished.snapshot, recorder))
    try:
        recorder.require()
    except RecordingFailedError as err:
        if finished.error is None:
            return dataclasses.replace(finished, outcome=Outcome.FAILED, error=str(err))
    return finished


def _with_recording(snapshot: Snapshot, recorder: Recorder | None) -> Snapshot:
    if recorder is None:
        return snapshot
    return dataclasses.replace(snapshot, recording=dataclasses.replace(recorder.counts))


class _Every:
    """Shows the counts, but not more often than every so many seconds."""

    def __init__(self, interval: float, counts: Callable[[], Snapshot], show: Callable[[Snapshot], None]) -> None:
        self._interval = interval
        self._counts = counts
        self._show = show
        self._due = time.monotonic() + interval

    def __call__(self) -> None:
        now = time.monotonic()
        if now >= self._due:
            self._due = now + self._interval
            self._show(self._counts())
