"""lerobot's SmolVLA (Shukor et al. 2025) as a flow that fpo fine-tunes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from plugrl_protocol.spaces import ActionSpace
from torch import nn

from plugrl_server.common.config_error import require
from plugrl_server.policy.base_torch_policy import resolve_device
from plugrl_server.policy.dppo.residual_mlp import residual_mlp
from plugrl_server.policy.flow.flow_policy import FlowPolicy
from plugrl_server.policy.lerobot.fine_tuning import batch_of, bounds_of, check_actions, check_inputs
from plugrl_server.policy.lerobot.lerobot_flow_policy_config import LeRobotFlowPolicyConfig
from plugrl_server.policy.lerobot.pretrained import Pretrained, load_pretrained
from plugrl_server.policy.registration import register_policy
from plugrl_server.policy.state import Tree

NAME = "lerobot-flow-policy"


def attention_mask(valid: torch.Tensor, starts_block: torch.Tensor) -> torch.Tensor:
    """Return which token may read which, b1[N, L, L]: those of its own block and of earlier ones.

    Args:
        valid: Which tokens are no padding, b1[N, L].
        starts_block: Where the blocks begin, [N, L], 0 or 1.
    """
    block = starts_block.cumsum(1)
    return (block[:, None] <= block[:, :, None]) & valid[:, None] & valid[:, :, None]


@register_policy(NAME)
class LeRobotFlowPolicy(FlowPolicy):
    """The language model and the action expert are lerobot's; the value network is new.

    lerobot's flow is ours: x_t = t eps + (1 - t) a, from t = 1 to 0. A chunk is lerobot's whole chunk in its normalised
    units, padded as lerobot pads it, [chunk_size, max_action_dim]; the first actions of it are sent, and of these the
    numbers that are no padding. The value reads the states, and what the vision encoder makes of the images.

    Attributes:
        model: lerobot's network; parameters that lerobot froze stay frozen.
        critic: The network of the value.
    """

    config: LeRobotFlowPolicyConfig
    model: Any

    def __init__(self, config: LeRobotFlowPolicyConfig) -> None:
        device = resolve_device(config.device)
        pretrained = load_pretrained(config.policy_path, device, type_name="smolvla", backbone=config.backbone_path)
        theirs = pretrained.config
        theirs.use_cache = True  # an observation's tokens are run once for all steps of a chain
        _check_kind(pretrained)
        check_actions(NAME, config, pretrained, horizon=theirs.chunk_size)
        self._lerobot_bounds = bounds_of(pretrained, device)
        super().__init__(
            dataclasses.replace(
                config,
                action_horizon=config.action_horizon or theirs.n_action_steps,
                num_steps=config.num_steps or theirs.num_steps,
            )
        )
        check_inputs(self, pretrained)
        self._bounds = self._lerobot_bounds
        self._chunk_shape = int(theirs.chunk_size), int(theirs.max_action_dim)
        self.model = pretrained.policy.model
        self._pretrained = (pretrained,)  # in a tuple, so that the module is registered once
        width = self.obs_dim + len(self.image_keys) * int(self.model.state_proj.out_features)
        self.critic = residual_mlp(width, config.critic_hidden_sizes, 1, nn.Mish)
        self.to(self.device, self.dtype)

    # Observations ------------------------------------------------------------------------------------------------

    def check_observation(self, obs: dict[str, Any]) -> str | None:
        """Return what is wrong: as ever, or a text that tells of another task than this run's."""
        if others := {str(text) for text in obs["text"]} - {"", self.config.task}:
            return f"text {min(others)!r}: {NAME} does one task, and --policy.task is {self.config.task!r}"
        return super().check_observation(obs)

    def condition(self, features: Tree) -> dict[str, Any]:
        """Return the keys and values of N observations' tokens in each layer, and which tokens are no padding."""
        (pretrained,) = self._pretrained
        inputs = self._inputs(features)
        images, present = pretrained.policy.prepare_images(inputs)
        tokens, valid, starts_block = self.model.embed_prefix(
            images,
            present,
            inputs["observation.language.tokens"],
            inputs["observation.language.attention_mask"],
            state=pretrained.policy.prepare_state(inputs),
        )
        _, cache = self.model.vlm_with_expert.forward(
            attention_mask=attention_mask(valid, starts_block),
            position_ids=valid.cumsum(1) - 1,
            past_key_values=None,
            inputs_embeds=[tokens, None],
            use_cache=True,
            fill_kv_cache=True,
        )
        return {"valid": valid, "cache": cache}

    def _inputs(self, features: Tree) -> dict[str, Any]:
        """Return features and task as lerobot's network takes them."""
        (pretrained,) = self._pretrained
        batch = batch_of(self, pretrained, features)
        batch["task"] = [self.config.task or ""] * len(features["states"])
        return pretrained.preprocess(batch)

    # Networks ----------------------------------------------------------------------------------------------------

    def velocity(self, features: Tree, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        """Return the velocity f4[N, H, A] at points f4[N, H, A] and times f4[N]; features from `condition`."""
        velocity: torch.Tensor = self.model.denoise_step(
            prefix_pad_masks=features["valid"], past_key_values=features["cache"], x_t=x, timestep=t
        )
        return velocity

    def value(self, features: Tree) -> torch.Tensor:
        """Return the value of N observations, f4[N]; lerobot's network learns nothing from it."""
        (pretrained,) = self._pretrained
        with torch.no_grad():
            inputs = self._inputs(features)
            images, _ = pretrained.policy.prepare_images(inputs)
            read = images[: len(self.image_keys)]  # empty cameras follow
            seen = [self.model.vlm_with_expert.embed_image(image).float().mean(1) for image in read]
            seen = [nn.functional.layer_norm(embedding, embedding.shape[-1:]) for embedding in seen]
            states = [inputs[name] for name in pretrained.states()]
        value: torch.Tensor = self.critic(torch.cat([*states, *seen], -1))
        return value.squeeze(-1)

    def actor_parameters(self) -> Iterable[nn.Parameter]:
        """Return those parameters of lerobot's network that it does not freeze: the action expert, by default."""
        return [parameter for parameter in self.model.parameters() if parameter.requires_grad]

    # Actions -----------------------------------------------------------------------------------------------------

    @property
    def chunk_shape(self) -> tuple[int, int]:
        """Steps and numbers of lerobot's padded chunks."""
        return self._chunk_shape

    def adopt_action_space(self, action_space: ActionSpace) -> None:
        """Clip actions to the declared space from now on; lerobot's own scale stays."""
        super().adopt_action_space(action_space)
        self._bounds = self._lerobot_bounds

    def to_actions(self, chunks: np.ndarray) -> np.ndarray:
        """Return the first actions of padded chunks, as the environments take them."""
        return super().to_actions(chunks[:, : self.action_horizon, : self.action_dim])


def _check_kind(pretrained: Pretrained) -> None:
    """Refuse what SmolVLA cannot do without, and what is no affine map of actions."""
    theirs, read = pretrained.config, ", ".join(pretrained.config.input_features)
    require(
        theirs.robot_state_feature is not None and len(pretrained.images()) > 0,
        f"{NAME} takes policies that read a robot's state and images; this one reads {read}.",
    )
    require(not theirs.adapt_to_pi_aloha, f"{NAME} does not take policies with adapt_to_pi_aloha.")
