import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from plugrl_server.children import peers

linux = pytest.mark.skipif(not Path("/proc/self/net/tcp").exists(), reason="needs Linux's /proc")

CONNECT = "import socket, sys; s = socket.create_connection(('127.0.0.1', {port})); sys.stdin.read()"


@pytest.fixture
def listener():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


@linux
def test_a_connection_is_found_with_the_process_of_the_tree_that_holds_it(listener):
    port = listener.getsockname()[1]
    assert peers.connections_to(port) == (0, set())
    command = f'true; {sys.executable} -c "{CONNECT.format(port=port)}"; true'
    with subprocess.Popen(["/bin/sh", "-c", command], stdin=subprocess.PIPE) as shell:
        with listener.accept()[0]:
            total, (client,) = peers.connections_to(port)
            family = list(peers.process_tree(shell.pid))
            assert total == 1
            assert [pid for pid in family if client in peers.held_by(pid)] == family[1:], "the shell holds none"
            assert client not in peers.held_by(os.getpid())
        shell.stdin.close()


@linux
def test_a_connection_of_ones_own_and_one_over_ipv6_are_found():
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as listening:
        address, port = listening.getsockname()[:2]
        with socket.create_connection((address, port)):
            total, clients = peers.connections_to(port)
            assert (total, len(clients)) == (1, 1)
            assert clients <= peers.held_by(os.getpid())


def test_where_the_system_says_nothing_nothing_is_known(monkeypatch):
    monkeypatch.setattr(peers, "_read", lambda path: "")
    assert peers.connections_to(80) is None


def test_a_process_that_is_gone_holds_nothing():
    with subprocess.Popen(["true"]) as gone:
        gone.wait()
        assert list(peers.process_tree(gone.pid)) == [gone.pid]
        assert peers.held_by(gone.pid) == set()
