"""The policy of the SAC example: a Gaussian squashed by tanh, twin critics with targets, and a temperature."""

import copy
import dataclasses
import math
from typing import Any, ClassVar

import numpy as np
import torch
from plugrl_server.policy.base_torch_policy import BaseTorchPolicy, BaseTorchPolicyConfig
from plugrl_server.policy.registration import register_policy, register_policy_config
from plugrl_server.policy.state import PolicyRuntimeState
from torch import nn
from torch.nn.functional import softplus

UID = "sac_policy"


@register_policy_config(UID)
@dataclasses.dataclass
class SACPolicyConfig(BaseTorchPolicyConfig):
    """Fields that are None are filled from what the first client declares and sends."""

    action_kinds: ClassVar[tuple[str, ...]] = ("box",)

    obs_dim: int | None = None
    """Summed width of the states, which are read side by side in the order of their names."""
    action_dim: int | None = None
    """Numbers in one action."""
    hidden_size: int = 256
    """Width of both hidden layers of every network."""


def mlp(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    """Return a ReLU network of two hidden layers."""
    layers = nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, outputs)
    return nn.Sequential(*layers)


@register_policy(UID)
class SACPolicy(BaseTorchPolicy):
    """Actions are learned in units in which the declared bounds are -1 and 1; the runtime state holds them so."""

    def __init__(self, config: SACPolicyConfig) -> None:
        super().__init__(config)
        # The server fills both dimensions before it builds a policy.
        self.action_dim, hidden = config.action_dim, config.hidden_size
        both = config.obs_dim + config.action_dim
        self.actor = mlp(config.obs_dim, hidden, 2 * config.action_dim)
        self.critics = nn.ModuleList(mlp(both, hidden, 1) for _ in range(2))
        self.targets = copy.deepcopy(self.critics).requires_grad_(False)
        self.log_alpha = nn.Parameter(torch.zeros(()))
        # Buffers, so that a checkpoint holds the bounds and a loaded policy acts within them.
        self.register_buffer("low", -torch.ones(self.action_dim))
        self.register_buffer("high", torch.ones(self.action_dim))
        self.to(self.device)

    def adopt_action_space(self, action_space: Any) -> None:
        """Take over the bounds a client declares, before it is served."""
        low, high = np.ravel(action_space.low), np.ravel(action_space.high)
        if not (np.isfinite(low).all() and np.isfinite(high).all()):
            raise ValueError(f"sac_policy needs finite bounds, got {low.tolist()} to {high.tolist()}")
        self.low.copy_(torch.tensor(low))
        self.high.copy_(torch.tensor(high))

    def check_observation(self, obs: dict[str, Any]) -> str | None:
        """Return why a client's observation cannot be read here, None when it can."""
        width = sum(state.shape[1] for state in obs["states"].values())
        return None if width == self.config.obs_dim else f"states of width {width}, this run has {self.config.obs_dim}"

    # Acting ------------------------------------------------------------------------------------------------------

    def get_action_and_runtime_state(self, obs: dict[str, Any]) -> tuple[np.ndarray, PolicyRuntimeState]:
        """Sample an action for each of n environments; without noise: tanh of the mean."""
        noise = np.zeros if self.deterministic else self.rng.standard_normal
        observed = torch.from_numpy(self.read(obs)).to(self.device)
        drawn = torch.as_tensor(noise((len(observed), self.action_dim)), dtype=torch.float32, device=self.device)
        with torch.no_grad():
            return self.act(self.sample(observed, drawn)[0])

    def uniform_action_and_runtime_state(self, n: int) -> tuple[np.ndarray, PolicyRuntimeState]:
        """Draw n actions uniformly between the bounds."""
        return self.act(torch.as_tensor(self.rng.uniform(-1, 1, (n, self.action_dim)), dtype=torch.float32))

    def act(self, sample: torch.Tensor) -> tuple[np.ndarray, PolicyRuntimeState]:
        """Return samples f4[n, action_dim] as chunks of one action [n, 1, action_dim], and as runtime state."""
        sample = sample.cpu()
        action = self.low.cpu() + (sample + 1) / 2 * (self.high - self.low).cpu()
        return action.numpy()[:, None], {"sample": sample.numpy()}

    @staticmethod
    def read(obs: dict[str, Any]) -> np.ndarray:
        """Return an observation's states side by side, f4[n, obs_dim]."""
        return np.concatenate([state for _, state in sorted(obs["states"].items())], axis=1).astype(np.float32)

    # Learning ----------------------------------------------------------------------------------------------------

    def sample(self, observed: torch.Tensor, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return a = tanh(mean + std noise), f4[n, action_dim], and log pi(a), f4[n]."""
        mean, raw = self.actor(observed).chunk(2, dim=-1)
        log_std = -5 + 3.5 * (torch.tanh(raw) + 1)  # between -5 and 2
        u = mean + log_std.exp() * noise
        log_normal = -0.5 * noise**2 - log_std - 0.5 * math.log(2 * math.pi)
        log_slope = 2 * (math.log(2) - u - softplus(-2 * u))  # log of da/du = 1 - tanh(u)^2
        return torch.tanh(u), (log_normal - log_slope).sum(-1)

    @staticmethod
    def q_values(critics: nn.ModuleList, observed: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        """Return what both critics (or their targets) say, f4[2, n]."""
        inputs = torch.cat([observed, action], dim=-1)
        return torch.stack([critic(inputs).squeeze(-1) for critic in critics])
