"""How to wait for processes that are not ours."""

import os
import select
from pathlib import Path

import pytest


@pytest.fixture
def gone():
    """Wait until a process, whosever child it is, has ended; the test fails where it does not."""

    def wait(pid):
        try:
            handle = os.pidfd_open(pid)
        except ProcessLookupError:
            return
        try:
            ended, _, _ = select.select([handle], [], [], 30)
            assert ended, f"process {pid} is still there: {Path(f'/proc/{pid}/cmdline').read_text()}"
        finally:
            os.close(handle)

    return wait


@pytest.fixture
def told(tmp_path):
    """A FIFO for shell commands to write numbers to, and a function that reads them all, once every writer has closed
    it."""
    fifo = tmp_path / "told"
    os.mkfifo(fifo)
    return fifo, lambda: [int(word) for word in fifo.read_text().split()]
