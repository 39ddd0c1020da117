"""Where log messages go while a run is shown."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

from rich.console import Console
from rich.logging import RichHandler

OWN = ("plugrl_server", "plugrl_protocol")


@contextlib.contextmanager
def logging_to(console: Console, level: str, *, live: bool) -> Iterator[None]:
    """Shows log messages of at least `level`, those of other packages from warnings on.

    Args:
        console: The screen; messages go above its live panel.
        level: "debug", "info", "warning" or "error".
        live: Whether there is a live panel; without one messages go to standard error.
    """
    handler: logging.Handler
    if live:
        handler = RichHandler(console=console, show_path=False, markup=False)
    else:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s", "%H:%M:%S"))
    root = logging.getLogger()
    root.addHandler(handler)
    before = {name: logging.getLogger(name).level for name in OWN}
    for name in OWN:
        logging.getLogger(name).setLevel(level.upper())
    try:
        yield
    finally:
        root.removeHandler(handler)
        for name, old in before.items():
            logging.getLogger(name).setLevel(old)
