"""What fine-tuning a policy of lerobot needs, of whichever kind: its inputs, its units of actions, and checks."""

from __future__ import annotations

from typing import Any

import torch

from plugrl_server.common.config_error import require
from plugrl_server.policy.denoising.action_bounds import ActionBounds
from plugrl_server.policy.denoising.denoising_policy_config import DenoisingPolicyConfig
from plugrl_server.policy.encoders.observation_reader import ReadsObservations
from plugrl_server.policy.lerobot.pretrained import Pretrained, as_tensor
from plugrl_server.policy.state import Tree


def batch_of(policy: ReadsObservations, pretrained: Pretrained, features: Tree) -> dict[str, Any]:
    """Return `features` of N observations under lerobot's names, in the environment's units: to be preprocessed.

    States are taken apart in the order of `Pretrained.states`, and images follow that of `Pretrained.images`.
    """
    states = features["states"] if policy.image_keys else features
    widths = pretrained.states()
    batch: dict[str, Any] = dict(zip(widths, states.split([*widths.values()], 1), strict=True))
    for name, key in zip(pretrained.images(), policy.image_keys, strict=True):
        batch[name] = as_tensor(features["images"][key], policy.device)
    return batch


def bounds_of(pretrained: Pretrained, device: torch.device) -> ActionBounds:
    """Return lerobot's units of actions: what it undoes of a normalised action is affine in each number."""
    bounds = ActionBounds(None, pretrained.action_dim)
    origin = torch.zeros(1, pretrained.action_dim, device=device)
    zero, one = (pretrained.postprocess(point).float().cpu().numpy()[0] for point in (origin, origin + 1))
    bounds.centre, bounds.half_width = zero, one - zero
    return bounds


def check_actions(name: str, config: DenoisingPolicyConfig, pretrained: Pretrained, *, horizon: int) -> None:
    """Refuse a policy that reads several observations, and sizes of chunks that it does not have.

    Args:
        name: What the policy is called here.
        config: Ours; a dimension of None is not asked for.
        pretrained: Theirs.
        horizon: Actions in a chunk of theirs.
    """
    past = pretrained.config.n_obs_steps
    require(past == 1, f"{name} takes policies that read one observation; this one reads {past} (n_obs_steps).")
    require(
        config.action_dim in (None, pretrained.action_dim),
        f"action_dim {config.action_dim}, this policy has {pretrained.action_dim}",
    )
    if (sent := config.action_horizon) is not None:
        require(sent <= horizon, f"--policy.action-horizon {sent}: this policy's horizon is {horizon}.")


def check_inputs(policy: ReadsObservations, pretrained: Pretrained) -> None:
    """Refuse states of another summed width, and images of other shapes, than lerobot's policy reads."""
    states, images = pretrained.states(), pretrained.images()
    require(
        policy.obs_dim == sum(states.values()),
        f"obs_dim {policy.obs_dim}, this policy reads {sum(states.values())}: {states} (--policy.state-keys)",
    )
    require(
        list(policy.image_shapes.values()) == list(images.values()),
        f"images {policy.image_shapes or 'none'}, this policy reads {images or 'none'} (--policy.image-keys)",
    )
