"""Where an openpi server is."""

import pytest
from plugrl_server.policy.openpi.openpi_url import server_url


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("robot", "ws://robot:8000"),
        ("robot:9000", "ws://robot:9000"),
        ("10.0.0.3", "ws://10.0.0.3:8000"),
        ("::1", "ws://[::1]:8000"),
        ("[::1]", "ws://[::1]:8000"),
        ("ws://robot", "ws://robot:8000"),
        ("ws://robot:9000/pi0", "ws://robot:9000/pi0"),
        ("wss://robot/pi0", "wss://robot:8000/pi0"),
    ],
)
def test_a_host_or_a_url(host, url):
    assert server_url(host, 8000) == url


@pytest.mark.parametrize("host", ["", "http://robot", "ws://", "robot:port"])
def test_what_is_none_is_refused(host):
    with pytest.raises(ValueError):
        server_url(host, 8000)
