"""The last frames of a conversation, told in one line each when a clause has been broken."""

import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from plugrl_protocol.codec import decode
from plugrl_protocol.codec.fields import describe
from plugrl_protocol.errors import ProtocolError, show_key

KEPT = 12
_SHOWN_BYTES = 24
_SHOWN_NUMBERS = 8
_SHOWN_ITEMS = 24


@dataclass(frozen=True)
class _Event:
    seconds: float
    who: str
    what: str | bytes  # a sentence, or a binary frame


class Trace:
    """Remembers what was sent and received, oldest first; only the last `KEPT` events are kept."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._events: deque[_Event] = deque(maxlen=KEPT)

    def add(self, who: str, what: str | bytes) -> None:
        """Note that `who` sent a binary frame, or did what a sentence says."""
        self._events.append(_Event(time.monotonic() - self._began, who, what))

    def lines(self) -> list[str]:
        """One line an event."""
        return [f"{event.seconds:8.3f} s  {event.who}: {_tell(event.what)}" for event in self._events]


def _tell(what: str | bytes) -> str:
    return what if isinstance(what, str) else f"{summary(what)} ({len(what):,} bytes)"


def summary(frame: bytes) -> str:
    """What a frame holds, in one line; works for any bytes."""
    try:
        value = decode(frame)
    except ProtocolError as error:
        dots = "..." if len(frame) > _SHOWN_BYTES else ""
        return f"undecodable, {error.detail}: {frame[:_SHOWN_BYTES].hex(' ')}{dots}"
    if not isinstance(value, Mapping):
        return f"no map but {describe(value)}"
    kind = value.get("message_type")
    items = [item for key, entry in value.items() if key != "message_type" for item in _items(show_key(key), entry)]
    more = ["..."] if len(items) > _SHOWN_ITEMS else []
    return " ".join([kind if isinstance(kind, str) and kind.isprintable() else "?", *items[:_SHOWN_ITEMS], *more])


def _items(path: str, value: Any) -> Iterator[str]:
    """`path=value` for every leaf, without the `data.` that all of them have."""
    if isinstance(value, Mapping):
        if not value:
            yield f"{path}={{}}"
        for key, entry in value.items():
            yield from _items(f"{path}.{show_key(key)}".removeprefix("data."), entry)
    else:
        yield f"{path}={_show(value)}"


def _show(value: object) -> str:
    if isinstance(value, np.ndarray) and value.dtype.kind != "U":
        few = value.ndim == 1 and len(value) <= _SHOWN_NUMBERS
        return f"{value.dtype.str}[{', '.join(map(_number, value.tolist()))}]" if few else describe(value, exact=True)
    if isinstance(value, (bool, int, float)):
        return _number(value)
    if isinstance(value, str) and len(value) <= _SHOWN_BYTES and value.isprintable():
        return repr(value)
    return describe(value)


def _number(value: float) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
