"""Stand-ins for openpi servers that end with the test."""

import threading

import numpy as np
import pytest

from tests.peers.openpi_server import OpenPIServer


@pytest.fixture
def openpi():
    """Starts a stand-in; by default it answers with 3 actions of 2 numbers, counted up."""
    running = []

    def begin(infer=lambda observation: {"actions": np.arange(6, dtype="f4").reshape(3, 2)}, **options):
        server = OpenPIServer(infer, **options)
        thread = threading.Thread(target=server.run)
        thread.start()
        running.append((server, thread))
        return server

    yield begin
    for server, thread in running:
        server.close()
        thread.join()
