"""Protocol errors: whose fault (the type), which clause, and how to close."""

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from plugrl_protocol.closing import RESYNC, Close

_P = ParamSpec("_P")
_R = TypeVar("_R")
_SHOWN = 60
_LOGGED = 500


class ProtocolError(Exception):
    """A breach of the protocol. Raised as one of the two subclasses, which say who erred.

    Attributes:
        clause: The id of the clause that was broken, such as `4.2 exchange/alternation`.
        detail: What is wrong and what was expected, with the path of the value.
        close: How the connection is to be closed.
    """

    def __init__(self, clause: str, detail: str, close: Close = RESYNC) -> None:
        super().__init__(detail)
        self.clause = clause
        self.detail = detail
        self.close = close

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.clause, self.detail, self.close)


class LocalProtocolError(ProtocolError):
    """Our own side was about to break the protocol. Nothing was sent."""


class RemoteProtocolError(ProtocolError):
    """The peer broke the protocol: close with `error.close`."""


def show_key(key: str | bytes) -> str:
    """A map key as part of a path: keys come from a peer, so they are cut short and cannot break a log line."""
    text = key if isinstance(key, str) else repr(key[:_SHOWN])[2:-1]
    return text if len(text) <= _SHOWN and text.isprintable() else repr(text[:_SHOWN])


def printable(text: str) -> str:
    """A text that quotes what a peer sent, for a log: cut where it is very long, and on one line."""
    short = text if len(text) <= _LOGGED else f"{text[:_LOGGED]}..."
    return short if short.isprintable() else repr(short)[1:-1]


def blame_peer(parse: Callable[_P, _R]) -> Callable[_P, _R]:
    """Decorate a reader of what the peer sent: an error in it is the peer's, not ours."""

    @functools.wraps(parse)
    def read(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return parse(*args, **kwargs)
        except LocalProtocolError as error:
            raise RemoteProtocolError(error.clause, error.detail, error.close) from None

    return read
