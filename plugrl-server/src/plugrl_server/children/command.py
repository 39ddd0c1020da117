"""The command and the environment that a started client gets."""

from __future__ import annotations

import ipaddress
import os
import sysconfig
from collections.abc import Mapping


def reachable(host: str) -> str:
    """Address under which a process on this machine reaches a server bound to `host`: loopback for all interfaces."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if not address.is_unspecified:
        return host
    return "127.0.0.1" if address.version == 4 else "::1"


def filled(command: str, host: str, port: int) -> str:
    """`command` with `{host}` and `{port}` replaced; other braces stay, as they are the shell's."""
    return command.replace("{host}", host).replace("{port}", str(port))


def client_hint(host: str, port: int) -> str:
    """How to start a client for a server that is bound to `host` and waits for one."""
    return (
        "waiting for a client; start one with\n"
        "  plugrl-run-env-client classic-v1 --env.name Pendulum-v1"
        f" --server-host {reachable(host)} --server-port {port}"
    )


def client_environment(
    inherited: Mapping[str, str], *, host: str, port: int, api_key: str | None, offset: int
) -> dict[str, str]:
    """Environment of a started client; `plugrl-run-env-client` takes these as the defaults of its flags.

    Args:
        inherited: The server's own environment.
        host: Address the client shall connect to.
        port: Port the client shall connect to.
        api_key: Key the server asks for, or None.
        offset: Position of this client among the started ones, from 0. Clients that number their connections for a
            deterministic run, or seed their environments, build on it so that no two of them are equal.

    Returns:
        The inherited variables with `PLUGRL_SERVER_HOST`, `PLUGRL_SERVER_PORT`, `PLUGRL_CLIENT_OFFSET` and, where
        there is a key, `PLUGRL_API_KEY`; `PATH` starts with the running interpreter's scripts folder, so that
        `plugrl-run-env-client` is found without activating anything.
    """
    scripts = sysconfig.get_path("scripts")
    environment = {
        **inherited,
        "PLUGRL_SERVER_HOST": host,
        "PLUGRL_SERVER_PORT": str(port),
        "PLUGRL_CLIENT_OFFSET": str(offset),
        "PATH": os.pathsep.join(path for path in (scripts, inherited.get("PATH", os.defpath)) if path),
    }
    environment.pop("PLUGRL_API_KEY", None)
    return environment if api_key is None else {**environment, "PLUGRL_API_KEY": api_key}
