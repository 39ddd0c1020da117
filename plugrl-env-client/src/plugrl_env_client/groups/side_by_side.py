"""Several groups in one process: a thread each, and the main thread to look after them.

While one group waits for actions, whether in the kernel or on the way to the server, the others step their envs. An env
is made, stepped and closed in one and the same thread, which rendering contexts insist on.
"""

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Sequence

from plugrl_env_client.groups.group import Finished, Group, Observe, unobserved, unwatched
from plugrl_env_client.groups.share import Share
from plugrl_env_client.link.interrupts import Interrupted, Interrupts
from plugrl_env_client.options import Run
from plugrl_env_client.reporting.tally import Snapshot, nothing_yet, together
from plugrl_env_client.rollout import Outcome

LINGER_SECONDS = 10.0  # from one group's hearing that the server has stopped to our ending the others
GRACE_SECONDS = 10.0  # from asking the groups to end to going without them: a close handshake takes 5
_NAP = 1.0  # between two looks of the main thread


def run_side_by_side(
    run: Run,
    shares: Sequence[Share],
    *,
    interrupts: Interrupts,
    observe: Observe = unobserved,
    watch: Callable[[Group], None] = unwatched,
    show: Callable[[Snapshot], None],
    interval: float,
) -> Finished:
    """Run one group for each share until all have ended, or one has failed.

    A group that fails ends the others, with close frames, and the error names it. So does an interrupt, which must be
    handled in the calling thread: a signal interrupts no other, so the groups look for it at least once a second.

    Args:
        run: the whole.
        shares: what each group runs of it.
        interrupts: set when the user wants the client to end.
        observe: makes the observers of each group's rollout; called in the group's thread.
        watch: called with each group as soon as its envs are made, in their order.
        show: called with the counts of all groups every `interval` seconds.
        interval: in seconds.

    Raises:
        EnvError: the envs cannot be made; no group has connected.
    """
    over: queue.SimpleQueue[_Thread] = queue.SimpleQueue()
    threads = [_Thread(run, share, interrupts, observe, over) for share in shares]
    try:
        for thread in threads:
            if interrupts.requested:  # others need not be made: a simulator takes long
                break
            watch(thread.make())
    except Exception:
        _end(threads)
        raise
    for thread in threads:
        thread.may_go.set()
    with contextlib.suppress(Interrupted):
        if not _until_one_decides(threads, over, interrupts, show, interval):
            with interrupts.waiting():
                _join(threads, LINGER_SECONDS)
    _end(threads)
    return _together(threads, interrupted=interrupts.requested)


class _Thread(threading.Thread):
    """A group's thread. It is a daemon: a second Ctrl-C ends the process, whatever an env is doing.

    Attributes:
        interrupts: set to end this group alone.
        may_go: set when the group may connect, or end without.
        finished: how it ended; None while it has not, or has not begun.
    """

    def __init__(
        self, run: Run, share: Share, above: Interrupts, observe: Observe, over: "queue.SimpleQueue[_Thread]"
    ) -> None:
        super().__init__(name=f"group {share.index}", daemon=True)
        self.interrupts = Interrupts(above)
        self.may_go = threading.Event()
        self.finished: Finished | None = None
        self._client_run = run
        self._share = share
        self._observe = observe
        self._over = over
        self._group: Group | None = None
        self._refused: BaseException | None = None
        self._made = threading.Event()

    @property
    def title(self) -> str:
        return f"group {self._share.index} ({self._share.envs})"

    def make(self) -> Group:
        """Start the thread and wait until its envs are made: one group after the other, since an env may fork."""
        self.start()
        self._made.wait()
        if self._refused is not None:
            raise self._refused
        assert self._group is not None  # noqa: S101 - it is made, or refused
        return self._group

    def snapshot(self) -> Snapshot:
        """What the group has counted."""
        return self._group.snapshot() if self._group is not None else nothing_yet(self._share.num_envs)

    @property
    def is_held_up(self) -> bool:
        """Whether it would end if an observer let it."""
        return self.is_alive() and self._group is not None and self._group.is_held_up

    def run(self) -> None:
        """The group's whole life."""
        try:
            self._group = Group(self._client_run, self._share, self.interrupts, self._observe)
        except BaseException as err:  # the main thread's to raise
            self._refused = err
            return
        finally:
            self._made.set()
        self.may_go.wait()
        if self.interrupts.requested:
            self._group.close()
            return
        self.finished = self._group.run(lambda: None)
        self._over.put(self)


def _until_one_decides(
    threads: Sequence[_Thread],
    over: "queue.SimpleQueue[_Thread]",
    interrupts: Interrupts,
    show: Callable[[Snapshot], None],
    interval: float,
) -> bool:
    """Wait until all groups have ended (True), one has failed (True), or the server has stopped one of them (False).

    Raises:
        Interrupted: the user wants the client to end.
    """
    left = len(threads)
    due = time.monotonic() + interval
    while left:
        with interrupts.waiting(), contextlib.suppress(queue.Empty):
            finished = over.get(timeout=min(max(due - time.monotonic(), 0.0), _NAP)).finished
            left -= 1
            if finished is None or finished.error is not None:
                return True
            if finished.outcome is Outcome.SERVER_STOPPED:
                return False
        if time.monotonic() >= due:
            due = time.monotonic() + interval
            show(together([thread.snapshot() for thread in threads]))
    return True


def _end(threads: Sequence[_Thread]) -> None:
    """Ask all groups to end, and wait until they have, but not for ever; a recorder knows itself when it is stuck."""
    for thread in threads:
        thread.interrupts.request()
        thread.may_go.set()
    _join(threads, GRACE_SECONDS)
    while any(thread.is_held_up for thread in threads):
        _join(threads, GRACE_SECONDS)


def _join(threads: Sequence[_Thread], seconds: float) -> None:
    until = time.monotonic() + seconds
    for thread in threads:
        if thread.is_alive():  # it may never have been started
            thread.join(max(until - time.monotonic(), 0.0))


def _together(threads: Sequence[_Thread], *, interrupted: bool) -> Finished:
    """How the groups ended, taken together; the first failure is the run's."""
    counted = together([thread.snapshot() for thread in threads])
    for thread in threads:
        if thread.is_alive():
            return Finished(Outcome.FAILED, counted, f"{thread.title} did not end within {GRACE_SECONDS:g} s")
        if thread.finished is not None and thread.finished.error is not None:
            failed = thread.finished
            return Finished(Outcome.FAILED, counted, f"{thread.title}: {failed.error}", failed.final, failed.usage)
    outcomes = {thread.finished.outcome for thread in threads if thread.finished is not None}
    if interrupted:
        return Finished(Outcome.INTERRUPTED, counted)
    return Finished(Outcome.SERVER_STOPPED if Outcome.SERVER_STOPPED in outcomes else Outcome.LIMIT, counted)
