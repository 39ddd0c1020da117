"""Where the server is."""

import pytest
from plugrl_env_client.link.address import Address, AddressError, parse_address


@pytest.mark.parametrize(
    ("host", "port", "address", "url"),
    [
        ("127.0.0.1", 8000, Address("127.0.0.1", 8000), "ws://127.0.0.1:8000"),
        ("gpu-box", 1, Address("gpu-box", 1), "ws://gpu-box:1"),
        ("::1", 8000, Address("::1", 8000), "ws://[::1]:8000"),
        ("[::1]", 8000, Address("::1", 8000), "ws://[::1]:8000"),
        ("ws://box", 8000, Address("box", 8000), "ws://box:8000"),
        ("ws://box:9", 8000, Address("box", 9), "ws://box:9"),
        ("wss://box/train?x=1", 443, Address("box", 443, True, "/train?x=1"), "wss://box:443/train?x=1"),
        ("wss://[::1]:9/", 443, Address("::1", 9, True), "wss://[::1]:9"),
    ],
)
def test_what_can_be_written(host, port, address, url):
    assert parse_address(host, port) == address
    assert str(address) == url


@pytest.mark.parametrize(
    ("host", "port", "says"),
    [
        ("", 8000, "--server-host ''"),
        ("box:9", 8000, "--server-host 'box:9'"),
        ("box/x", 8000, "--server-host"),
        ("http://box", 8000, "expected ws://HOST"),
        ("ws://", 8000, "expected ws://HOST"),
        ("ws://me:pw@box", 8000, "expected ws://HOST"),
        ("ws://box:abc", 8000, "--server-host 'ws://box:abc'"),
        ("box", 0, "--server-port 0: expected 1 to 65535"),
        ("box", 65536, "--server-port 65536"),
        ("ws://box:0", 8000, "--server-port 0"),
    ],
)
def test_what_cannot_is_refused_by_flag(host, port, says):
    with pytest.raises(AddressError, match=says):
        parse_address(host, port)
