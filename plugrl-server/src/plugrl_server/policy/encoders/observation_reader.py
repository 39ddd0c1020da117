"""Reading observations: what of them is stored, and what networks take of it."""

from typing import Any

import numpy as np
import torch

from plugrl_server.common.config_error import ConfigError
from plugrl_server.learning import trees
from plugrl_server.learning.normalizer import RunningNormalizer
from plugrl_server.learning.trees import Tree
from plugrl_server.policy.base_torch_policy import BaseTorchPolicy
from plugrl_server.policy.encoders.observation_config import ObservationConfig

FLOAT32_MAX = float(np.finfo(np.float32).max)


class ReadsObservations(BaseTorchPolicy):
    """A policy that reads any mix of states and images.

    The normaliser is part of the module, so weights and statistics are saved, loaded and copied together.

    Args:
        config: With its dimensions filled.

    Attributes:
        obs_dim: Summed width of the states it reads; 0 where it reads images alone.
        image_shapes: Height, width and channels of each image it reads, in the order of `image_keys`.
        normalizer: Running statistics of the states; `update_normalizer` moves them.
        feature_dtype: The floating type of `features`; a policy with narrower weights sets it to theirs.

    Raises:
        ConfigError: A dimension is missing; the text names the flag.
    """

    config: ObservationConfig

    def __init__(self, config: ObservationConfig) -> None:
        super().__init__(config)
        if config.obs_dim is None:
            raise ConfigError(f"{type(self).__name__} needs --policy.obs-dim, or a client that declares its spaces.")
        self.obs_dim = config.obs_dim
        self.state_keys = config.state_keys
        self.image_shapes = dict(config.image_shapes or {})
        self.image_keys: tuple[str, ...] = tuple(self.image_shapes)
        self.normalizer = RunningNormalizer((self.obs_dim,))
        self.feature_dtype = torch.float32

    # Of the wire -------------------------------------------------------------------------------------------------

    def observe(self, obs: dict[str, Any]) -> Tree:
        """Return what this policy reads of an observation of n environments: what buffers store.

        Returns:
            Its states side by side, f4[n, obs_dim], when it reads states only; else
            `{"states": f4[n, obs_dim], "images": {key: u1[n, h, w, c]}}`, without `states` when it reads none.
        """
        if not self.image_keys:
            return self._read_states(obs["states"])
        images = {key: obs["images"][key] for key in self.image_keys}
        return {"states": self._read_states(obs["states"]), "images": images} if self.obs_dim else {"images": images}

    def _read_states(self, states: dict[str, np.ndarray]) -> np.ndarray:
        keys = sorted(states) if self.state_keys is None else self.state_keys
        observed = np.empty((len(states[keys[0]]), self.obs_dim), np.float32)
        start = 0
        for key in keys:
            state = states[key]
            part = observed[:, start : start + state.shape[1]]
            if state.dtype == np.float64:  # beyond float32's range it would become infinite
                np.clip(state, -FLOAT32_MAX, FLOAT32_MAX, out=part, casting="same_kind")
            else:
                part[:] = state
            start += state.shape[1]
        return observed

    def check_observation(self, obs: dict[str, Any]) -> str | None:
        """Return what is wrong: what is missing, another summed width, an image of another shape or no uint8."""
        if (problem := super().check_observation(obs)) is not None:
            return problem
        states = obs["states"]
        width = sum(states[key].shape[1] for key in (states if self.state_keys is None else self.state_keys))
        if width != self.obs_dim:
            return f"obs_dim {width}, this run has {self.obs_dim}"
        for key, shape in self.image_shapes.items():
            image = obs["images"][key]
            if image.dtype != np.uint8:
                return f"images.{key} is {image.dtype}: images are read as uint8 of 0 to 255"
            if image.shape[1:] != shape:
                return f"images.{key} {list(image.shape[1:])}, this run has {list(shape)}"
        return None

    def fake_obs(self, n: int) -> dict[str, Any]:
        """Return an all-zero observation of n environments."""
        images = {key: np.zeros((n, *shape), np.uint8) for key, shape in self.image_shapes.items()}
        states = super().fake_obs(n)["states"] if self.obs_dim else {}
        return {"images": images, "states": states, "text": np.zeros(n, "<U1")}

    # For the networks --------------------------------------------------------------------------------------------

    def features(self, observed: Tree) -> Tree:
        """Return what the networks take of N stacked `observe` results, on this policy's device.

        States are normalised, of `feature_dtype`; images stay uint8. Constant within an iteration.

        Args:
            observed: As `observe` returns it, arrays or tensors, [N, ...].
        """
        tensors = trees.map_leaves(self._tensor, observed)
        if not self.image_keys:
            return self._normalized(tensors)
        return {**tensors, "states": self._normalized(tensors["states"])} if self.obs_dim else tensors

    def update_normalizer(self, observed: Tree) -> None:
        """Take N more observations into the statistics; only ever between iterations."""
        if self.config.normalize_observations and self.obs_dim:
            self.normalizer.update(self._tensor(observed["states"] if self.image_keys else observed))

    def _normalized(self, states: torch.Tensor) -> torch.Tensor:
        inputs = self.normalizer(states) if self.config.normalize_observations else states
        normalized: torch.Tensor = inputs.to(self.feature_dtype)
        return normalized

    def _tensor(self, leaf: Any) -> torch.Tensor:
        if isinstance(leaf, np.ndarray):  # an image may be a view on a message, which is read-only
            leaf = torch.from_numpy(np.require(leaf, requirements=["C", "W"]))
        tensor: torch.Tensor = leaf.to(self.device)
        return tensor
