"""Where the server is: host, port and scheme, as the user wrote them."""

import dataclasses
import ipaddress
from urllib.parse import urlsplit

MAX_PORT = 65_535


class AddressError(ValueError):
    """A host or port that cannot be one: the text names the flag."""


@dataclasses.dataclass(frozen=True)
class Address:
    """A server's address.

    Attributes:
        host: a name, an IPv4 or an IPv6 address (without brackets).
        port: 1..65535.
        secure: True for `wss://`.
        path: the path of the WebSocket, "/" unless the user gave another.
    """

    host: str
    port: int
    secure: bool = False
    path: str = "/"

    def __str__(self) -> str:
        path = "" if self.path == "/" else self.path
        return f"{'wss' if self.secure else 'ws'}://{_bracketed(self.host)}:{self.port}{path}"


def parse_address(host: str, port: int) -> Address:
    """Read `--server-host` and `--server-port`.

    Args:
        host: a host name, an IP address, or `ws://HOST[:PORT][/PATH]` / `wss://...`; a port in it wins.
        port: the port where `host` names none.

    Raises:
        AddressError: not an address.
    """
    if "://" in host:
        return _parse_url(host, port)
    bare = host.strip("[]")
    if not bare or any(char in bare for char in "/ ?#@") or (":" in bare and not _is_ipv6(bare)):
        raise AddressError(f"--server-host {host!r}: expected a host name, an IP address or a ws:// or wss:// URL")
    return Address(bare, _checked(port))


def _parse_url(url: str, port: int) -> Address:
    try:
        parts = urlsplit(url)
        given = parts.port
    except ValueError as err:
        raise AddressError(f"--server-host {url!r}: {err}") from None
    if parts.scheme not in ("ws", "wss") or not parts.hostname or parts.username is not None:
        raise AddressError(f"--server-host {url!r}: expected ws://HOST[:PORT] or wss://HOST[:PORT]")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Address(parts.hostname, _checked(port if given is None else given), parts.scheme == "wss", path)


def _checked(port: int) -> int:
    if not 1 <= port <= MAX_PORT:
        raise AddressError(f"--server-port {port}: expected 1 to {MAX_PORT}")
    return port


def _is_ipv6(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.partition("%")[0]).version == 6
    except ValueError:
        return False


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
