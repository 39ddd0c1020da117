"""Close codes and reasons, and what a client does on each (SPEC 7)."""

import enum
from dataclasses import dataclass

_REASON_BYTES = 123  # RFC 6455 5.5: a control frame carries 125 bytes, two of them are the code
REJECT_PREFIX = "plugrl-server-reject: "


@dataclass(frozen=True)
class Close:
    """A WebSocket close: what is put on the wire, or what was read from it.

    Attributes:
        code: The close code (RFC 6455 7.4); 1006 stands for "the connection broke without a close frame".
        reason: The reason; at most 123 bytes of UTF-8 travel.
    """

    code: int
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.code} {self.reason}".rstrip()


STOP = Close(1001, "plugrl-server-stop")
RESYNC = Close(1001, "plugrl-server-resync")
FEEDBACK_TIMEOUT = Close(1001, "Feedback timeout")
INTERNAL_ERROR = Close(1011, "Internal server error.")
DONE = Close(1000)
TOO_BIG = Close(1009, "frame over the size cap")
UNRESPONSIVE = Close(1011, "keepalive ping timeout")
TEXT_FRAME = Close(1003, "text frame where a binary frame was due")
METADATA_TIMEOUT = Close(1001, "Metadata timeout")
ACTION_TIMEOUT = Close(1001, "Action timeout")


def reject(detail: str) -> Close:
    """The close for a client that this run cannot serve (SPEC 10.2); a client treats it as final."""
    return Close(1008, _fit(REJECT_PREFIX + detail))


def complain(detail: str) -> Close:
    """The close a client sends to a server that broke the protocol."""
    return Close(1002, _fit(detail))


class Reaction(enum.Enum):
    """What a client does after a close (SPEC 7.7)."""

    END = "end"  # the run is over: exit 0
    RECONNECT = "reconnect"  # with back-off, fresh metadata, and an infer first
    FATAL = "fatal"  # print the reason, exit non-zero


# 1008 the server refuses this client, 1009 a frame was too big, 1003 text where binary was due (SPEC 7.4): each would
# happen again on the next connection.
_FATAL_CODES = frozenset({1003, 1008, 1009})


def reaction(close: Close) -> Reaction:
    """What a client does when its connection ended with `close` (SPEC 7.7)."""
    if close == STOP:
        return Reaction.END
    return Reaction.FATAL if close.code in _FATAL_CODES else Reaction.RECONNECT


def _fit(reason: str) -> str:
    """Cut `reason` to what a close frame carries, never inside a character."""
    return reason.encode("utf-8", "replace")[:_REASON_BYTES].decode("utf-8", "ignore")
