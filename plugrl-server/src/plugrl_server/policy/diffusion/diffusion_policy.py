"""The base of diffusion policies."""

import abc

import numpy as np
import torch

from plugrl_server.policy.denoising.denoising_policy import DenoisingPolicy
from plugrl_server.policy.diffusion.cosine_schedule import posterior
from plugrl_server.policy.diffusion.diffusion_policy_config import DiffusionPolicyConfig
from plugrl_server.policy.state import Tree


class DiffusionPolicy(DenoisingPolicy):
    """A DDPM (Ho, Jain, Abbeel 2020) over chunks. A subclass writes `predict_noise`, `value` and the parameter lists.

    A step takes the noise out of x_k, clips what is left (the denoised chunk) and samples x_{k+1} from the posterior,
    with a standard deviation of at least `min_sampling_std`.
    """

    config: DiffusionPolicyConfig

    def __init__(self, config: DiffusionPolicyConfig) -> None:
        super().__init__(config)
        steps = posterior(self.num_steps)
        table = np.stack(steps._replace(std=np.maximum(steps.std, config.min_sampling_std)), -1)
        self._posterior = torch.from_numpy(table.astype(np.float32)).to(self.device)[:, :, None, None]

    @abc.abstractmethod
    def predict_noise(self, features: Tree, x: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        """Return the noise in x, f4[N, H, A].

        Args:
            features: From `condition`, of leading N.
            x: States of N chains, f4[N, H, A].
            k: Which step each is at, 0 the noisiest, i8[N].
        """

    def denoise_step(self, features: Tree, x: torch.Tensor, k: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return mean f4[N, H, A] and standard deviation f4[N, 1, 1] of the next state."""
        of_state, of_noise, mean_of_denoised, mean_of_state, std = self._posterior[k].unbind(1)
        denoised = of_state * x - of_noise * self.predict_noise(features, x, k)
        clip = self.config.denoised_clip
        return mean_of_denoised * denoised.clamp(-clip, clip) + mean_of_state * x, std
