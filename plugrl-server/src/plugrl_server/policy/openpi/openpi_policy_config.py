"""Configuration of the policy that asks an openpi policy server."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from plugrl_server.common.config_error import ConfigError, require
from plugrl_server.policy.base_policy import BasePolicyConfig
from plugrl_server.policy.key_map import KeyMap
from plugrl_server.policy.openpi.openpi_url import server_url
from plugrl_server.policy.registration import register_policy_config


@register_policy_config("openpi-policy")
@dataclasses.dataclass
class OpenPIPolicyConfig(BasePolicyConfig):
    """Asks an openpi policy server for actions, to evaluate a checkpoint that it serves."""

    action_kinds: ClassVar[tuple[str, ...]] = ("box",)
    brings_weights: ClassVar[bool] = True

    openpi_host: str = "127.0.0.1"
    """Host of the openpi server, or its ws:// or wss:// URL."""
    openpi_port: int = 8000
    """Port of the openpi server, where the URL names none."""
    openpi_api_key: str | None = None
    """Key that the openpi server wants; better given as OPENPI_API_KEY, which other users of the machine cannot see."""
    key_map: tuple[str, ...] = ()
    """THEIR_KEY=OUR_NAME for every image and state, states joined by +; a dot nests; default: our own names."""
    prompt: str | None = None
    """What to do, where the environment sends no text."""
    prompt_key: str = "prompt"
    """Key under which the server expects the text."""
    action_horizon: int | None = None
    """Use the first so many actions of a chunk; default: all that the server's first answer has."""
    connect_timeout: float = 60.0
    """Seconds to keep trying to connect."""
    answer_timeout: float = 120.0
    """Seconds to wait for an answer; the first may compile."""

    def check(self) -> None:
        """Refuse maps that cannot be read, ports, horizons and times out of range."""
        keys = KeyMap.parse(self.key_map).sources
        for key in keys:
            inner = next((other for other in keys if other.startswith(f"{key}.")), None)
            require(inner is None, f"--policy.key-map: {key} and {inner} cannot both be: one would lie in the other.")
        require(1 <= self.openpi_port <= 65_535, f"--policy.openpi-port {self.openpi_port}: must be 1 to 65535.")
        try:
            server_url(self.openpi_host, self.openpi_port)
        except ValueError as error:
            raise ConfigError(f"--policy.openpi-host {self.openpi_host}: {error}") from error
        if (horizon := self.action_horizon) is not None:
            require(horizon >= 1, f"--policy.action-horizon {horizon}: must be at least 1.")
        for name in ("connect_timeout", "answer_timeout"):
            require(
                getattr(self, name) > 0, f"--policy.{name.replace('_', '-')} {getattr(self, name)}: must be above 0."
            )
