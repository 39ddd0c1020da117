"""The first message of every connection (SPEC 5.1)."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from typing import Any

from plugrl_protocol.connection import DECLARE, REUSE
from plugrl_protocol.messages import Metadata

PROTOCOL_VERSION = 1
FEATURES = (REUSE, DECLARE)
SERVER_VERSION = importlib.metadata.version("plugrl-server")


def server_metadata(run: Mapping[str, Any], operator: Mapping[str, str]) -> Metadata:
    """Return what the server says about itself.

    Args:
        run: What is known of the run by now: algorithm, policy, action_horizon, action_dim; absent means unknown.
        operator: `--metadata KEY=VALUE`, merged over the top.
    """
    return Metadata(
        {
            "protocol_version": PROTOCOL_VERSION,
            "server": "plugrl-server",
            "server_version": SERVER_VERSION,
            **run,
            "features": list(FEATURES),
            **operator,
        }
    )
