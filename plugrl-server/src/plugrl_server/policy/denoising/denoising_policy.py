"""The chain that diffusion and flow policies share, and what algorithms ask of one."""

import abc
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from plugrl_protocol.spaces import ActionSpace, BoxSpace
from torch import nn
from torch.func import functional_call

from plugrl_server.common.config_error import ConfigError
from plugrl_server.learning import trees
from plugrl_server.learning.normalizer import RunningNormalizer
from plugrl_server.policy.action_spaces import action_dim, to_env_actions
from plugrl_server.policy.base_torch_policy import BaseTorchPolicy
from plugrl_server.policy.denoising.action_bounds import ActionBounds
from plugrl_server.policy.denoising.denoising_policy_config import DenoisingPolicyConfig
from plugrl_server.policy.state import PolicyRuntimeState, Tree

NOISE_CLIP = 3.0
FLOAT32_MAX = float(np.finfo(np.float32).max)


class DenoisingPolicy(BaseTorchPolicy):
    """A policy whose chunk x_K is denoised from noise x_0 in K steps: x_{k+1} ~ N(mean, std), given by `denoise_step`.

    Chunks are f4[n, H, A] in units in which the declared bounds are -1 and 1; actions without bounds keep their own.
    k counts from 0, the noisiest step, to K - 1. A subclass writes `denoise_step` and `value`, names its parameters,
    and ends its `__init__` with `self.to(self.device, self.dtype)`.

    The steps before the last few can be made to keep the weights of a moment (`freeze_early_steps`). These weights are
    buffers: a `state_dict` holds them, so an evaluation acts by them too.

    Args:
        config: With its dimensions filled.

    Attributes:
        num_steps: K.
        kept_steps: The runtime state holds the last `kept_steps + 1` states of the chain; K at first.
        early_steps: First steps that run frozen weights; 0 at first.
        normalizer: Running statistics of the states; `update_normalizer` moves them.
        obs_dim: Summed width of the states it reads.
        dtype: Type of its weights.
    """

    config: DenoisingPolicyConfig
    action_dim: int

    def __init__(self, config: DenoisingPolicyConfig) -> None:
        super().__init__(config)
        if config.obs_dim is None or config.action_dim is None:
            raise ConfigError(
                f"{type(self).__name__} needs --policy.obs-dim and --policy.action-dim, or a client that declares its "
                f"spaces."
            )
        self.obs_dim = config.obs_dim
        self.state_keys = config.state_keys
        self.image_keys = ()
        self.action_horizon = config.action_horizon
        self.action_dim = config.action_dim
        self.num_steps = config.num_steps
        self.kept_steps = config.num_steps
        self.early_steps = 0
        self.frozen = _Frozen(0, [])
        self._frozen_names: list[str] = []
        self.dtype: torch.dtype = getattr(torch, config.dtype)
        self.normalizer = RunningNormalizer((self.obs_dim,))
        self._space: BoxSpace | None = None
        self._bounds = ActionBounds(None, self.action_dim)
        if config.action_space is not None:
            self.adopt_action_space(config.action_space)

    # What a subclass writes --------------------------------------------------------------------------------------

    @abc.abstractmethod
    def denoise_step(self, features: Tree, x: torch.Tensor, k: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return mean f4[N, H, A] and standard deviation (of a shape that broadcasts to it) of the next state.

        Args:
            features: From `features`, of leading N.
            x: States of N chains, f4[N, H, A].
            k: Which step each is at, i8[N].
        """

    @abc.abstractmethod
    def value(self, features: Tree) -> torch.Tensor:
        """Return the value of N observations, f4[N]."""

    @abc.abstractmethod
    def actor_parameters(self) -> Iterable[nn.Parameter]:
        """Return the parameters `denoise_step` depends on."""

    @abc.abstractmethod
    def critic_parameters(self) -> Iterable[nn.Parameter]:
        """Return the parameters `value` depends on, none of them the actor's."""

    # Observations ------------------------------------------------------------------------------------------------

    def observe(self, obs: dict[str, Any]) -> np.ndarray:
        """Return what this policy reads of an observation: its states side by side, f4[n, obs_dim]."""
        states = obs["states"]
        keys = sorted(states) if self.state_keys is None else self.state_keys
        columns = [np.clip(states[key], -FLOAT32_MAX, FLOAT32_MAX).astype(np.float32) for key in keys]
        return np.concatenate(columns, 1)

    def check_observation(self, obs: dict[str, Any]) -> str | None:
        """Return what is wrong with an observation: states that are missing, or another summed width."""
        if (problem := super().check_observation(obs)) is not None:
            return problem
        states = obs["states"]
        width = sum(states[key].shape[1] for key in (states if self.state_keys is None else self.state_keys))
        return None if width == self.obs_dim else f"obs_dim {width}, this run has {self.obs_dim}"

    def features(self, observed: torch.Tensor) -> torch.Tensor:
        """Return what the networks take of stacked `observe` results [N, obs_dim]; constant within an iteration."""
        inputs = self.normalizer(observed) if self.config.normalize_observations else observed
        return inputs.to(self.dtype)

    def update_normalizer(self, observed: torch.Tensor) -> None:
        """Take N more observations into the statistics; only ever between iterations."""
        if self.config.normalize_observations:
            self.normalizer.update(observed)

    # Actions -----------------------------------------------------------------------------------------------------

    def adopt_action_space(self, action_space: ActionSpace) -> None:
        """Map chunks to these bounds from now on.

        Raises:
            ValueError: It is no Box of this policy's action_dim.
        """
        if not isinstance(action_space, BoxSpace):
            raise ValueError(f"{type(self).__name__} needs a Box action space, got {action_space}")
        if action_dim(action_space) != self.action_dim:
            raise ValueError(f"action_dim {action_dim(action_space)}, this run has {self.action_dim}")
        self._space = action_space
        self._bounds = ActionBounds(action_space, self.action_dim)

    def to_actions(self, chunks: np.ndarray) -> np.ndarray:
        """Return chunks f4[n, H, A] as the environments take them: [n, H, *shape] of the declared dtype, in bounds."""
        return to_env_actions(self._space, self._bounds.denormalize(chunks))

    def from_actions(self, actions: np.ndarray) -> np.ndarray:
        """Return an environment's actions [n, H, *shape] as chunks f4[n, H, A]: the inverse of `to_actions`."""
        return self._bounds.normalize(actions.reshape(*actions.shape[:2], self.action_dim).astype(np.float32))

    # Sampling ----------------------------------------------------------------------------------------------------

    def get_action_and_runtime_state(self, obs: dict[str, Any]) -> tuple[np.ndarray, PolicyRuntimeState]:
        """Sample n chunks: the actions, and the end of each chain `{"chain": f4[n, kept_steps + 1, H, A]}`."""
        observed = trees.map_leaves(lambda leaf: torch.from_numpy(leaf).to(self.device), self.observe(obs))
        with torch.inference_mode():
            chain = self.sample_chain(self.features(observed)).cpu().numpy()
        return self.to_actions(chain[:, -1]), {"chain": chain}

    def initial_noise(self, n: int) -> torch.Tensor:
        """Draw x_0 of n chains, f4[n, H, A]; zeros where the policy is deterministic."""
        return self._noise(1, n)[0]

    def sample_chain(self, features: Tree) -> torch.Tensor:
        """Run the chain for n observations; returns its last `kept_steps + 1` states, f4[n, kept_steps + 1, H, A]."""
        n = trees.leading(features) or 0
        x, noise = self.initial_noise(n), self._noise(self.num_steps, n)
        steps = torch.arange(self.num_steps, device=self.device)[:, None].expand(-1, n)
        chain = [x]
        for k in range(self.num_steps):
            step = self._early_step if k < self.early_steps else self.denoise_step
            mean, std = step(features, x, steps[k])
            x = mean if self.deterministic else torch.addcmul(mean, std, noise[k])
            chain.append(x)
        return torch.stack(chain[self.num_steps - self.kept_steps :], 1)

    def _noise(self, *leading: int) -> torch.Tensor:
        """Draw f4[*leading, H, A] of standard normal numbers, clipped to +-3; zeros where it is deterministic."""
        shape = (*leading, self.action_horizon, self.action_dim)
        if self.deterministic:
            return torch.zeros(shape, device=self.device)
        noise = self.rng.standard_normal(shape, dtype=np.float32)
        return torch.from_numpy(noise.clip(-NOISE_CLIP, NOISE_CLIP)).to(self.device)

    # Frozen early steps ------------------------------------------------------------------------------------------

    def forward(self, features: Tree, x: torch.Tensor, k: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return `denoise_step`: what `torch.func.functional_call` runs with other weights."""
        return self.denoise_step(features, x, k)

    def freeze_early_steps(self, count: int) -> None:
        """Let the first `count` steps run a copy of the actor's weights as they are now; 0 ends it."""
        self.early_steps = count
        ids = {id(parameter) for parameter in self.actor_parameters()} if count else set()
        actor = {name: parameter for name, parameter in self.named_parameters() if id(parameter) in ids}
        self._frozen_names = list(actor)
        self.frozen = _Frozen(count, list(actor.values()))

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Restore weights and statistics and, where the state has them, the frozen weights of early steps."""
        self.freeze_early_steps(int(state_dict.get("frozen.count", 0)))
        return super().load_state_dict(state_dict, strict=strict, assign=assign)

    def _early_step(self, features: Tree, x: torch.Tensor, k: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        weights = dict(zip(self._frozen_names, self.frozen.weights(), strict=True))
        step: tuple[torch.Tensor, torch.Tensor] = functional_call(self, weights, (features, x, k), tie_weights=False)
        return step


class _Frozen(nn.Module):
    """Copies of parameters as buffers, and how many steps run them."""

    def __init__(self, count: int, parameters: Sequence[torch.Tensor]) -> None:
        super().__init__()
        if count:
            self.register_buffer("count", torch.tensor(count))
        for i, parameter in enumerate(parameters):
            self.register_buffer(f"weight_{i}", parameter.detach().clone())

    def weights(self) -> list[torch.Tensor]:
        return [buffer for name, buffer in self.named_buffers() if name != "count"]
