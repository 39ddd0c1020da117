import os
import sysconfig

import pytest
from plugrl_server.children.command import client_environment, client_hint, filled, reachable


@pytest.mark.parametrize(
    ("bound", "address"),
    [
        ("0.0.0.0", "127.0.0.1"),
        ("::", "::1"),
        ("127.0.0.1", "127.0.0.1"),
        ("192.168.1.7", "192.168.1.7"),
        ("localhost", "localhost"),
        ("::1", "::1"),
    ],
)
def test_a_client_reaches_a_server_bound_to_all_interfaces_over_loopback(bound, address):
    assert reachable(bound) == address


def test_only_host_and_port_are_replaced():
    assert filled("run {host}:{port} ${HOME} {other}", "10.0.0.1", 81) == "run 10.0.0.1:81 ${HOME} {other}"


def test_the_environment_names_the_server_and_the_client():
    environment = client_environment({"A": "1", "PATH": "/bin"}, host="127.0.0.1", port=81, api_key="k", offset=2)
    assert environment["A"] == "1"
    assert environment["PLUGRL_SERVER_HOST"] == "127.0.0.1"
    assert environment["PLUGRL_SERVER_PORT"] == "81"
    assert environment["PLUGRL_API_KEY"] == "k"
    assert environment["PLUGRL_CLIENT_OFFSET"] == "2"
    assert environment["PATH"] == sysconfig.get_path("scripts") + os.pathsep + "/bin"


def test_a_server_without_a_key_passes_none_on():
    environment = client_environment({"PLUGRL_API_KEY": "stale"}, host="h", port=1, api_key=None, offset=0)
    assert "PLUGRL_API_KEY" not in environment


def test_the_hint_names_an_address_that_can_be_reached():
    """Lesson 27."""
    assert client_hint("0.0.0.0", 81).endswith("--server-host 127.0.0.1 --server-port 81")
