"""What a client does when there is no connection, or no longer one: SPEC 7.7 and field lesson 11."""

import logging
import random
import threading
import time
from collections.abc import Callable

from plugrl_protocol.closing import STOP, Reaction, reaction

from plugrl_env_client.link.address import Address
from plugrl_env_client.link.client_link import Link
from plugrl_env_client.link.interrupts import Interrupts
from plugrl_env_client.link.opening import ConnectError
from plugrl_env_client.link.transport import Closed

FIRST_DELAY = 0.2
LONGEST_DELAY = 15.0
_NAP = 0.5

_logger = logging.getLogger(__name__)


class ServerStopped(Exception):  # noqa: N818 - the normal end of a run
    """The server has ended the run."""


class GaveUp(Exception):  # noqa: N818 - the text is for the user
    """There will be no connection: the server refused this client, or --max-reconnects attempts have failed."""


class Reconnector:
    """Opens connections, waits between attempts, and knows when to stop trying.

    The wait before attempt k (since the last completed exchange) is drawn between half of and the full
    `0.2 s * 2**(k - 1)`, at most 15 s. Every kind of loss takes this path; one line is logged an attempt.

    Args:
        address: the server.
        open_link: opens one connection.
        max_reconnects: attempts after the first one, counted anew after every completed exchange.
        after_stop: keep trying after the server has ended its run (`--reconnect-on-server-stop`).
        sleep: waits so many seconds, or until the user wants the client to end.
        rng: draws the jitter.
    """

    def __init__(
        self,
        address: Address,
        open_link: Callable[[], Link],
        *,
        max_reconnects: int,
        after_stop: bool = False,
        sleep: Callable[[float], None],
        rng: random.Random | None = None,
    ) -> None:
        self._address = address
        self._open_link = open_link
        self._max_reconnects = max_reconnects
        self._after_stop = after_stop
        self._sleep = sleep
        self._rng = rng or random.Random()
        self._attempts = 0
        self._ever_connected = False

    def connect(self) -> Link:
        """Open a connection, with as many attempts as are left.

        Raises:
            ServerStopped: the server closed with stop before its metadata.
            GaveUp: no more attempts, or one that no other would improve on.
            Interrupted: the user wants the client to end.
        """
        while True:
            try:
                link = self._open_link()
            except ConnectError as err:
                if err.final:
                    raise GaveUp(f"{self._address}: {err}") from None
                self._wait(str(err))
            except Closed as err:
                self.lost(err)
            else:
                self._ever_connected = True
                return link

    def completed(self) -> None:
        """An exchange was completed: the server works, attempts are counted anew."""
        self._attempts = 0

    def lost(self, closed: Closed) -> None:
        """A connection has ended: wait for the next attempt.

        Raises:
            ServerStopped: it was the end of the run.
            GaveUp: no more attempts, or the reason is final (1003, 1008, 1009).
            Interrupted: the user wants the client to end.
        """
        self._ever_connected = True
        what = reaction(closed.close)
        if what is Reaction.FATAL:
            raise GaveUp(f"{self._address}: {_reason(closed)}")
        if what is Reaction.END and not self._after_stop:
            raise ServerStopped
        self._wait(_reason(closed))

    def _wait(self, reason: str) -> None:
        self._attempts += 1
        if self._attempts > self._max_reconnects:
            raise GaveUp(f"{self._address}: {reason}; gave up after --max-reconnects {self._max_reconnects}")
        longest = min(FIRST_DELAY * 2.0 ** (self._attempts - 1), LONGEST_DELAY)
        delay = longest * self._rng.uniform(0.5, 1.0)
        advice = "" if self._ever_connected or self._attempts > 1 else f" ({HOW_TO_START})"
        _logger.warning(
            "%s: %s%s; attempt %d of %d in %.1f s",
            self._address,
            reason,
            advice,
            self._attempts,
            self._max_reconnects,
            delay,
        )
        self._sleep(delay)


HOW_TO_START = (
    "is a server running? Start one with: plugrl-run-server gaussian-policy default ppo default, "
    "or name another with --server-host and --server-port"
)


def interruptible_sleep(interrupts: Interrupts) -> Callable[[float], None]:
    """A sleep that a signal ends: at once in the main thread, within `_NAP` seconds in others."""

    def sleep(seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            with interrupts.waiting():
                threading.Event().wait(min(left, _NAP))

    return sleep


def _reason(closed: Closed) -> str:
    if closed.close == STOP:
        return "the server has ended its run"
    return str(closed)
