"""Where log lines go: standard error, above the live line where there is one."""

import logging
import sys
from typing import TYPE_CHECKING, TextIO

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


def set_up_logs(level: str, *, quiet: bool, process: int | None = None) -> None:
    """Send this package's log lines to standard error.

    Args:
        level: "debug", "info", "warning" or "error".
        quiet: only errors, whatever the level.
        process: the number that lines of a child process start with.
    """
    handler = _StandardError()
    mark = "" if process is None else f"[{process}] "
    handler.setFormatter(logging.Formatter(f"{mark}%(message)s"))
    logger = logging.getLogger("plugrl_env_client")
    logger.handlers[:] = [handler]
    logger.propagate = False
    logger.setLevel("ERROR" if quiet else level.upper())
