"""Sees to it that no client outlives its server, even where the server is killed with SIGKILL."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

from plugrl_server.children import guard_main


class Guard:
    """A process beside the server that ends the clients' process groups once the server is gone.

    The kernel's own way, a signal at the parent's death, reaches only the shell that runs a client's command, and is
    Linux's alone. This way is any Unix's, and takes any command in any language with all that it starts.

    Args:
        seconds: From SIGTERM to SIGKILL.

    Raises:
        OSError: The process cannot be started.
    """

    def __init__(self, seconds: float = 10.0):
        program = [sys.executable, "-I", "-S", str(Path(guard_main.__file__)), str(os.getpid()), str(seconds)]
        self._process = subprocess.Popen(  # noqa: S603 - this interpreter and a file of this package
            program,
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # or what ends the server's group would end it too
        )

    def begins(self, group: int) -> None:
        """This process group is a client's."""
        self._tell(group)

    def over(self, group: int) -> None:
        """Nothing is left of this process group: its number may become a stranger's."""
        self._tell(-group)

    def close(self) -> None:
        """All clients are gone: it has nothing to do any more. May be called again."""
        self._process.kill()
        self._process.communicate()

    def _tell(self, number: int) -> None:
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):  # somebody has killed it
                self._process.stdin.write(f"{number}\n".encode())
