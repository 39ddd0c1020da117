"""A policy whose actions are asked of an openpi policy server, one request for each environment."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from plugrl_protocol.codec import encode
from plugrl_protocol.spaces import ActionSpace

from plugrl_server.common.config_error import ConfigError
from plugrl_server.policy.action_spaces import action_dim, to_env_actions
from plugrl_server.policy.base_policy import BasePolicy
from plugrl_server.policy.key_map import KeyMap
from plugrl_server.policy.openpi.openpi_link import OpenPIError, OpenPILink
from plugrl_server.policy.openpi.openpi_policy_config import OpenPIPolicyConfig
from plugrl_server.policy.registration import register_policy
from plugrl_server.policy.state import PolicyRuntimeState

API_KEY_VARIABLE = "OPENPI_API_KEY"


@register_policy("openpi-policy")
class OpenPIPolicy(BasePolicy):
    """Hands observations on and actions back. It has no weights here, so nothing can train it.

    Attributes:
        action_horizon: 0 until the server's first answer tells, unless the configuration does.
        link: The connection to the openpi server.
    """

    config: OpenPIPolicyConfig

    def __init__(self, config: OpenPIPolicyConfig) -> None:
        super().__init__(config)
        config.check()
        self.key_map = KeyMap.parse(config.key_map)
        self.action_horizon = config.action_horizon or 0
        self._space: ActionSpace | None = None
        self.link = OpenPILink(
            config.openpi_host,
            config.openpi_port,
            api_key=config.openpi_api_key or os.environ.get(API_KEY_VARIABLE) or None,
            connect_timeout=config.connect_timeout,
            answer_timeout=config.answer_timeout,
        )
        try:
            self.link.connect()  # now, so that a server that is not there ends the run before it begins
        except OpenPIError as error:
            raise ConfigError(f"{error} (--policy.openpi-host, --policy.openpi-port)") from error

    def adopt_action_space(self, action_space: ActionSpace) -> None:
        """Hold answers against the declared space, and clip them to it, from now on."""
        self._space, self.action_dim = action_space, action_dim(action_space)

    def fake_obs(self, n: int) -> dict[str, Any]:
        """Return n empty observations: what the server expects is not known before a client comes."""
        return {"images": {}, "states": {}, "text": np.zeros(n, "<U1")}

    def check_observation(self, obs: dict[str, Any]) -> str | None:
        """Return what the key map names and the observation lacks."""
        if not obs["images"] and not obs["states"]:
            return "observation has neither images nor states"
        return self.key_map.problem(obs)

    def get_action_and_runtime_state(self, obs: dict[str, Any]) -> tuple[np.ndarray, PolicyRuntimeState]:
        """Ask for the chunks of n environments one after another: actions [n, H, *shape], f4 until a space is declared.

        Empty observations (a warm-up) are answered with zeros, without asking.

        Raises:
            OpenPIError: The server failed, answers nothing, or answers something else than actions.
        """
        n = len(obs["text"])
        if not obs["images"] and not obs["states"]:
            nothing = np.zeros((n, self.action_horizon or 1, self.action_dim or 1), np.float32)
            return to_env_actions(self._space, nothing), None
        read = self.key_map.read(obs)
        requests = [self._request(read, str(obs["text"][row]), row) for row in range(n)]
        chunks = np.stack([self._chunk(self.link.ask(encode(request))) for request in requests])
        return to_env_actions(self._space, chunks), None

    def _request(self, read: dict[str, np.ndarray], text: str, row: int) -> dict[str, Any]:
        """Return the map that the server is sent for one environment."""
        request: dict[str, Any] = {}
        for key, values in read.items():
            *outer, last = key.split(".")
            place = request
            for name in outer:
                place = place.setdefault(name, {})
            place[last] = values[row]
        if prompt := text or self.config.prompt:
            request[self.config.prompt_key] = prompt
        return request

    def _chunk(self, answer: Any) -> np.ndarray:
        """Return the actions of an answer, f4[H, A]."""
        actions = answer.get("actions") if isinstance(answer, dict) else None
        if not isinstance(actions, np.ndarray) or actions.ndim != 2 or not actions.size:
            raise OpenPIError(f"{self.link.url}: expected a map with actions [H, A], got {_shown(answer)}")
        horizon, width = actions.shape
        if self.action_dim is not None and width != self.action_dim:
            raise OpenPIError(
                f"{self.link.url}: its actions have {width} numbers, these environments take {self.action_dim}"
            )
        if not self.action_horizon:
            self.action_horizon = horizon
        if horizon < self.action_horizon:
            raise OpenPIError(
                f"{self.link.url}: a chunk of {horizon} actions, where {self.action_horizon} are expected "
                f"(--policy.action-horizon)"
            )
        return actions[: self.action_horizon].astype(np.float32, copy=False)


def _shown(answer: Any) -> str:
    if isinstance(answer, dict):
        actions = answer.get("actions")
        shape = f", actions {list(actions.shape)}" if isinstance(actions, np.ndarray) else ""
        return f"a map of {', '.join(map(str, answer)) or 'nothing'}{shape}"
    return type(answer).__name__
