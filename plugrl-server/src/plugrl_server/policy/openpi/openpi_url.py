"""Where an openpi server is."""

from __future__ import annotations

from urllib.parse import urlsplit


def server_url(host: str, port: int) -> str:
    """Return the URL of a server.

    Args:
        host: Host name, address, or a ws:// or wss:// URL.
        port: Port, where `host` names none.

    Raises:
        ValueError: `host` is none of these.
    """
    bare = f"[{host}]" if host.count(":") > 1 and "://" not in host and not host.startswith("[") else host
    parts = urlsplit(bare if "://" in bare else f"ws://{bare}")
    if parts.scheme not in ("ws", "wss") or not parts.hostname:
        raise ValueError("expected a host name, an address, or a ws:// or wss:// URL")
    netloc = parts.netloc if parts.port is not None else f"{parts.netloc}:{port}"
    return parts._replace(netloc=netloc).geturl()
