"""A program that outlives a killed server for a moment, to end the clients which that has started.

It runs by itself, without the package: `python guard_main.py SERVER SECONDS`, with the server's process id and the time
from SIGTERM to SIGKILL. On its standard input come process groups, one a line: `7` has begun, `-7` is over. The
server is gone when the input ends, or when this process is no longer the server's child: a process that the server has
forked may hold the input open.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time

_LOOK_SECONDS = 1.0  # between two looks at who the parent is
_NAP_SECONDS = 0.05


def groups_left(source: int, server: int) -> set[int]:
    """Waits until the server is gone, and returns the process groups that are not over.

    Args:
        source: Descriptor on which they are told.
        server: Process id of the parent.
    """
    groups: set[int] = set()
    text = b""
    while True:
        ready, _, _ = select.select([source], [], [], _LOOK_SECONDS)
        if ready:
            told = os.read(source, 65536)
            if not told:
                return groups
            *lines, text = (text + told).split(b"\n")
            for number in map(int, lines):
                if number > 0:
                    groups.add(number)
                else:
                    groups.discard(-number)
        elif os.getppid() != server:
            return groups


def end(groups: set[int], seconds: float) -> None:
    """Terminates process groups, and kills what is left of them after so many seconds."""
    for number, patience in ((signal.SIGTERM, seconds), (signal.SIGKILL, 0.0)):
        for group in groups:
            _signal(group, number)
        until = time.monotonic() + patience
        while (groups := {group for group in groups if _signal(group, 0)}) and time.monotonic() < until:
            time.sleep(_NAP_SECONDS)


def _signal(group: int, number: int) -> bool:
    """Whether there is still somebody to signal."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
        return True
    return False


if __name__ == "__main__":
    end(groups_left(sys.stdin.fileno(), int(sys.argv[1])), float(sys.argv[2]))
