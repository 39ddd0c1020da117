"""lerobot's diffusion policy (Chi et al. 2023) as a denoising chain that dppo fine-tunes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from plugrl_protocol.spaces import ActionSpace
from torch import nn

from plugrl_server.policy.base_torch_policy import resolve_device
from plugrl_server.policy.diffusion.cosine_schedule import Posterior
from plugrl_server.policy.diffusion.diffusion_policy import DiffusionPolicy
from plugrl_server.policy.dppo.residual_mlp import residual_mlp
from plugrl_server.policy.lerobot.fine_tuning import batch_of, bounds_of, check_actions, check_inputs
from plugrl_server.policy.lerobot.lerobot_diffusion_policy_config import LeRobotDiffusionPolicyConfig
from plugrl_server.policy.lerobot.pretrained import load_pretrained
from plugrl_server.policy.registration import register_policy
from plugrl_server.policy.state import Tree

NAME = "lerobot-diffusion-policy"
NO_CLIP = 1e6


def spaced_posterior(alphas_cumprod: np.ndarray, timesteps: np.ndarray) -> Posterior:
    """Return the DDPM posterior of a chain that takes only some of a schedule's steps (DDIM with eta 1).

    Args:
        alphas_cumprod: The schedule's signal power at each of its steps, f8[T].
        timesteps: The steps to take, descending, i8[K].
    """
    signal = alphas_cumprod[timesteps]
    before = np.append(alphas_cumprod[timesteps[1:]], 1.0)
    alpha = signal / before
    return Posterior(
        of_state=np.sqrt(1 / signal),
        of_noise=np.sqrt(1 / signal - 1),
        mean_of_denoised=np.sqrt(before) * (1 - alpha) / (1 - signal),
        mean_of_state=np.sqrt(alpha) * (1 - before) / (1 - signal),
        std=np.sqrt((1 - alpha) * (1 - before) / (1 - signal)),
    )


@register_policy(NAME)
class LeRobotDiffusionPolicy(DiffusionPolicy):
    """The U-Net and encoders are lerobot's; the value network is new, over what the encoders make of an observation.

    A chunk is lerobot's whole horizon in lerobot's normalised units; its first `n_action_steps` are sent. States are
    read side by side in the order of `state_keys`: the robot's, then the environment's; images in that of `image_keys`.

    Attributes:
        model: lerobot's network.
        critic: The network of the value.
    """

    config: LeRobotDiffusionPolicyConfig
    model: Any
    _timesteps: torch.Tensor

    def __init__(self, config: LeRobotDiffusionPolicyConfig) -> None:
        device = resolve_device(config.device)
        pretrained = load_pretrained(config.policy_path, device, type_name="diffusion")
        theirs, scheduler = pretrained.config, pretrained.policy.diffusion.noise_scheduler
        check_actions(NAME, config, pretrained, horizon=theirs.horizon)
        self._lerobot_bounds = bounds_of(pretrained, device)
        steps = config.num_steps or theirs.num_inference_steps or theirs.num_train_timesteps
        super().__init__(
            dataclasses.replace(
                config,
                action_horizon=config.action_horizon or theirs.n_action_steps,
                num_steps=steps,
                denoised_clip=theirs.clip_sample_range if theirs.clip_sample else NO_CLIP,
            )
        )
        check_inputs(self, pretrained)
        self._bounds = self._lerobot_bounds
        self.horizon = int(theirs.horizon)
        self.model = pretrained.policy.diffusion
        self._pretrained = (pretrained,)  # in a tuple, so that the module is registered once
        scheduler.set_timesteps(steps)
        self._timesteps = scheduler.timesteps.to(self.device)
        self._use_schedule(scheduler.alphas_cumprod.double().cpu().numpy())
        width = sum(pretrained.states().values())
        if images := pretrained.images():
            encoders: Any = self.model.rgb_encoder
            one: Any = encoders[0] if isinstance(encoders, nn.ModuleList) else encoders
            width += len(images) * int(one.feature_dim)
        self.critic = residual_mlp(width, config.critic_hidden_sizes, 1, nn.Mish)
        self.to(self.device, self.dtype)

    def _use_schedule(self, alphas_cumprod: np.ndarray) -> None:
        """Replace the cosine schedule by lerobot's."""
        steps = spaced_posterior(alphas_cumprod, self._timesteps.cpu().numpy())
        table = np.stack(steps._replace(std=np.maximum(steps.std, self.config.min_sampling_std)), -1)
        self._posterior = torch.from_numpy(table.astype(np.float32)).to(self.device)[:, :, None, None]

    # Observations ------------------------------------------------------------------------------------------------

    def condition(self, features: Tree) -> torch.Tensor:
        """Return what lerobot's encoders make of N observations, [N, width]."""
        (pretrained,) = self._pretrained
        inputs = pretrained.preprocess(batch_of(self, pretrained, features))
        conditioning = {name: inputs[name][:, None] for name in pretrained.states()}
        if self.image_keys:
            pictures = torch.stack([inputs[name] for name in pretrained.images()], dim=1)
            conditioning["observation.images"] = pictures[:, None]
        encoded: torch.Tensor = self.model._prepare_global_conditioning(conditioning)
        return encoded

    # Networks ----------------------------------------------------------------------------------------------------

    def predict_noise(self, features: torch.Tensor, x: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        """Return the noise in x, f4[N, H, A]; arguments as `DiffusionPolicy.predict_noise`."""
        (pretrained,) = self._pretrained
        output: torch.Tensor = self.model.unet(x.to(self.dtype), self._timesteps[k], global_cond=features).float()
        if pretrained.config.prediction_type == "epsilon":
            return output
        of_state, of_noise = self._posterior[k, 0], self._posterior[k, 1]
        return (of_state * x - output) / of_noise

    def value(self, features: Tree) -> torch.Tensor:
        """Return the value of N observations, f4[N]; the encoders learn nothing from it."""
        value: torch.Tensor = self.critic(self.condition(features).detach())
        return value.squeeze(-1).float()

    def actor_parameters(self) -> Iterable[nn.Parameter]:
        """Return the parameters of lerobot's network."""
        parameters: Iterable[nn.Parameter] = self.model.parameters()
        return parameters

    def critic_parameters(self) -> Iterable[nn.Parameter]:
        """Return the parameters of the value network."""
        return self.critic.parameters()

    # Actions -----------------------------------------------------------------------------------------------------

    @property
    def chunk_shape(self) -> tuple[int, int]:
        """Chains are of lerobot's whole horizon."""
        return self.horizon, self.action_dim

    def adopt_action_space(self, action_space: ActionSpace) -> None:
        """Clip actions to the declared space from now on; lerobot's own scale stays."""
        super().adopt_action_space(action_space)
        self._bounds = self._lerobot_bounds

    def to_actions(self, chunks: np.ndarray) -> np.ndarray:
        """Return the first actions of chunks f4[n, horizon, A], as the environments take them."""
        return super().to_actions(chunks[:, : self.action_horizon])
