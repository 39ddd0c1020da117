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
from plugrl_server.policy.action_spaces import required_box, to_env_actions
from plugrl_server.policy.denoising.action_bounds import ActionBounds
from plugrl_server.policy.denoising.denoising_policy_config import DenoisingPolicyConfig
from plugrl_server.policy.encoders.observation_reader import ReadsObservations
from plugrl_server.policy.state import PolicyRuntimeState, Tree

NOISE_CLIP = 3.0


class DenoisingPolicy(ReadsObservations):
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
        dtype: Type of its weights.
    """

    config: DenoisingPolicyConfig
    action_dim: int

    def __init__(self, config: DenoisingPolicyConfig) -> None:
        super().__init__(config)
        if config.action_dim is None:
            raise ConfigError(f"{type(self).__name__} needs --policy.action-dim, or a client that declares its spaces.")
        self.action_horizon = config.action_horizon
        self.action_dim = config.action_dim
        self.num_steps = config.num_steps
        self.kept_steps = config.num_steps
        self.early_steps = 0
        self.frozen = _Frozen(0, [])
        self._frozen_names: list[str] = []
        self.dtype: torch.dtype = getattr(torch, config.dtype)
        self.feature_dtype = self.dtype
        self._space: BoxSpace | None = None
        self._bounds = ActionBounds(None, self.action_dim)
        if config.action_space is not None:
            self.adopt_action_space(config.action_space)

    # What a subclass writes --------------------------------------------------------------------------------------

    def condition(self, features: Tree) -> Tree:
        """Return what `denoise_step` takes of the features, a tree of the same leading N; once for a whole chain.

        By default the features themselves. A policy that reads images encodes them here.
        """
        return features

    @abc.abstractmethod
    def denoise_step(self, features: Tree, x: torch.Tensor, k: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return mean f4[N, H, A] and standard deviation (of a shape that broadcasts to it) of the next state.

        Args:
            features: From `condition`, of leading N.
            x: States of N chains, f4[N, H, A].
            k: Which step each is at, i8[N].
        """

    @abc.abstractmethod
    def value(self, features: Tree) -> torch.Tensor:
        """Return the value of N observations, f4[N]; takes what `features` returned."""

    @abc.abstractmethod
    def actor_parameters(self) -> Iterable[nn.Parameter]:
        """Return the parameters `denoise_step` depends on."""

    @abc.abstractmethod
    def critic_parameters(self) -> Iterable[nn.Parameter]:
        """Return the parameters `value` depends on, none of them the actor's."""

    @property
    def chunk_shape(self) -> tuple[int, int]:
        """H and A of the chain's states; a network may carry more steps or numbers than are sent."""
        return self.action_horizon, self.action_dim

    # Actions -----------------------------------------------------------------------------------------------------

    def adopt_action_space(self, action_space: ActionSpace) -> None:
        """Map chunks to these bounds from now on.

        Raises:
            ValueError: It is no Box of this policy's action_dim.
        """
        self._space = required_box(action_space, self.action_dim, type(self).__name__)
        self._bounds = ActionBounds(self._space, self.action_dim)

    def to_actions(self, chunks: np.ndarray) -> np.ndarray:
        """Return chunks f4[n, H, A] as the environments take them: [n, H, *shape] of the declared dtype, in bounds."""
        return to_env_actions(self._space, self._bounds.denormalize(chunks))

    def from_actions(self, actions: np.ndarray) -> np.ndarray:
        """Return an environment's actions [n, H, *shape] as chunks f4[n, H, A]: the inverse of `to_actions`."""
        return self._bounds.normalize(actions.reshape(*actions.shape[:2], self.action_dim).astype(np.float32))

    # Sampling ----------------------------------------------------------------------------------------------------

    def get_action_and_runtime_state(self, obs: dict[str, Any]) -> tuple[np.ndarray, PolicyRuntimeState]:
        """Sample n chunks: the actions, and the end of each chain `{"chain": f4[n, kept_steps + 1, H, A]}`."""
        with torch.inference_mode():
            chain = self.sample_chain(self.features(self.observe(obs))).cpu().numpy()
        return self.to_actions(chain[:, -1]), {"chain": chain}

    def initial_noise(self, n: int) -> torch.Tensor:
        """Draw x_0 of n chains, f4[n, H, A]; zeros where the policy is deterministic."""
        return self._noise(1, n)[0]

    def sample_chain(self, features: Tree) -> torch.Tensor:
        """Run the chain for n observations; returns its last `kept_steps + 1` states, f4[n, kept_steps + 1, H, A]."""
        n = trees.leading(features) or 0
        chain, noise = [self.initial_noise(n)], self._noise(self.num_steps, n)
        if self.early_steps:
            weights = dict(zip(self._frozen_names, self.frozen.weights(), strict=True))
            early = (features, chain[-1], noise, range(self.early_steps))
            chain += functional_call(self, weights, early, tie_weights=False)
        chain += self(features, chain[-1], noise, range(self.early_steps, self.num_steps))
        return torch.stack(chain[self.num_steps - self.kept_steps :], 1)

    def forward(self, features: Tree, x: torch.Tensor, noise: torch.Tensor, steps: range) -> list[torch.Tensor]:
        """Return the states some steps lead to from x, a list of f4[n, H, A].

        Args:
            features: From `features`, of leading n.
            x: The state before, f4[n, H, A].
            noise: Standard normal numbers for all steps, f4[K, n, H, A].
            steps: The steps to take.
        """
        condition, states = self.condition(features), []
        for step in steps:
            k = torch.full((len(x),), step, device=self.device)
            mean, std = self.denoise_step(condition, x, k)
            x = mean if self.deterministic else torch.addcmul(mean, std, noise[step])
            states.append(x)
        return states

    def _noise(self, *leading: int) -> torch.Tensor:
        """Draw f4[*leading, H, A] of standard normal numbers, clipped to +-3; zeros where it is deterministic."""
        shape = (*leading, *self.chunk_shape)
        if self.deterministic:
            return torch.zeros(shape, device=self.device)
        noise = self.rng.standard_normal(shape, dtype=np.float32)
        return torch.from_numpy(noise.clip(-NOISE_CLIP, NOISE_CLIP)).to(self.device)

    # Frozen early steps ------------------------------------------------------------------------------------------

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
