"""Starts the two programs and sees to it that nothing outlives a test."""

import pytest

from tests.end_to_end import programs


@pytest.fixture
def start(tmp_path):
    """Starts a program in the test's own folder."""
    running = []

    def begin(*argv):
        running.append(programs.Program(*argv, cwd=tmp_path))
        return running[-1]

    yield begin
    for program in running:
        program.end()


@pytest.fixture
def serve(start):
    """Starts a server on a port that the system chooses; returns it once it listens, with that port."""

    def begin(*argv):
        server = start(programs.SERVER, *argv, "--port", 0)
        return server, int(server.wait_for(r"listening on \S+ port (\d+)")[1])

    return begin
