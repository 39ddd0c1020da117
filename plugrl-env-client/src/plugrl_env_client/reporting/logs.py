"""Where log lines go: standard error, above the live line where there is one."""

import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

TAIL_LINES = 20
_TAIL_BYTES = 64 * 2**10
_TAIL_WIDTH = 500

if TYPE_CHECKING:
    _Stream = logging.StreamHandler[TextIO]
else:
    _Stream = logging.StreamHandler  # not to be subscripted before Python 3.11


class _StandardError(_Stream):
    """Writes to whatever `sys.stderr` is now: a live line replaces it while it is shown."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:  # type: ignore[override]
        return sys.stderr


def set_up_logs(level: str, *, quiet: bool, file: bool = False, also: logging.Handler | None = None) -> None:
    """Send this package's log lines to standard error.

    Args:
        level: "debug", "info", "warning" or "error".
        quiet: only errors, whatever the level.
        file: standard error is a log file: say of each line when it was written and how severe it is.
        also: gets every line, too.
    """
    handler = _StandardError()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s" if file else "%(message)s"))
    logger = logging.getLogger("plugrl_env_client")
    logger.handlers[:] = [handler] if also is None else [handler, also]
    logger.propagate = False
    logger.setLevel("ERROR" if quiet else level.upper())


def last_lines(log: Path, count: int = TAIL_LINES) -> list[str]:
    """The end of a log file, without the empty lines; nothing where there is none."""
    try:
        with log.open("rb") as file:
            file.seek(max(file.seek(0, os.SEEK_END) - _TAIL_BYTES, 0))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return []
    lines = (line[:_TAIL_WIDTH] for line in text.splitlines() if line.strip())
    return list(lines)[-count:]
