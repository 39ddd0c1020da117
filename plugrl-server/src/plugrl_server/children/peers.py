"""Which processes of this machine have connections to a port, as Linux tells in /proc; elsewhere nothing is known."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_ESTABLISHED = "01"


class Connections(NamedTuple):
    """The established TCP connections to a local port.

    Attributes:
        total: How many there are.
        clients: The clients' ends that are on this machine, as `held_by` names them.
    """

    total: int
    clients: set[str]


def connections_to(port: int) -> Connections | None:
    """The connections to a local port, or None where the system does not say."""
    total, clients = 0, set()
    tables = [_read(Path("/proc/self/net", name)).splitlines()[1:] for name in ("tcp", "tcp6")]
    for line in itertools.chain(*tables):
        _, local, remote, state, *_, inode = line.split()[:10]
        if state == _ESTABLISHED:
            total += _port(local) == port
            if _port(remote) == port:
                clients.add(f"socket:[{inode}]")
    return Connections(total, clients) if any(tables) else None


def held_by(pid: int) -> set[str]:
    """The names of the files and sockets that a process has open."""
    names = set()
    for descriptor in _entries(Path(f"/proc/{pid}/fd")):
        try:
            names.add(str(descriptor.readlink()))
        except OSError:  # closed meanwhile
            continue
    return names


def process_tree(pid: int) -> Iterator[int]:
    """A process and everything that it has started and that runs."""
    yield pid
    for thread in _entries(Path(f"/proc/{pid}/task")):
        for child in _read(thread / "children").split():
            yield from process_tree(int(child))


def _port(address: str) -> int:
    return int(address.rpartition(":")[2], 16)


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:  # the process has ended, or is somebody else's
        return []


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
