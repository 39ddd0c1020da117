"""One process of a client: its share of the run, in one group or in several."""

import time
from collections.abc import Callable

from plugrl_env_client.groups.group import Finished as Finished
from plugrl_env_client.groups.group import Group
from plugrl_env_client.groups.share import Share as Share
from plugrl_env_client.groups.share import shares as shares
from plugrl_env_client.groups.share import whole
from plugrl_env_client.groups.side_by_side import run_side_by_side
from plugrl_env_client.link.interrupts import Interrupts
from plugrl_env_client.options import Run
from plugrl_env_client.reporting.tally import Snapshot


def run_client(
    run: Run, share: Share, *, interrupts: Interrupts, show: Callable[[Snapshot], None], interval: float
) -> Finished:
    """Run one process's share to its end, in `run.options.num_groups` groups.

    Args:
        run: the whole.
        share: what this process runs of it.
        interrupts: set when the user wants the client to end.
        show: called with the counts every `interval` seconds.
        interval: in seconds.

    Raises:
        EnvError: the envs cannot be made. Later failures are returned, with what was counted until then.
    """
    groups = share.divided(run.options.num_groups)
    if len(groups) > 1:
        return run_side_by_side(run, groups, interrupts=interrupts, show=show, interval=interval)
    group = Group(run, share, interrupts)
    return group.run(_Every(interval, group.snapshot, show))


def run_alone(run: Run, *, interrupts: Interrupts, show: Callable[[Snapshot], None], interval: float) -> Finished:
    """Run everything in this process: `run_client` with the whole for a share."""
    return run_client(run, whole(run.options), interrupts=interrupts, show=show, interval=interval)


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
