"""Loading a policy that `lerobot` saved, with its normalisation, from a folder. Nothing is fetched.

The only module that imports `lerobot`, and only when a policy is loaded: it takes most of a minute, and it is not
installed with this package, because it caps torch and others (`INSTALL`).
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from plugrl_server.common.config_error import ConfigError, require

FLAG = "--policy.policy-path"
FILES = ("config.json", "model.safetensors", "policy_preprocessor.json", "policy_postprocessor.json")
EMPTY_CAMERA = "empty_camera_"


@dataclasses.dataclass(frozen=True)
class Pretrained:
    """A policy of lerobot.

    Attributes:
        policy: `lerobot`'s `PreTrainedPolicy`, in evaluation mode.
        preprocess: Takes a batch in the environment's units, returns it as the policy takes it.
        postprocess: Takes actions [n, A] of the policy, returns them in the environment's units.
    """

    policy: Any
    preprocess: Callable[[dict[str, Any]], dict[str, Any]]
    postprocess: Callable[[torch.Tensor], torch.Tensor]

    @property
    def config(self) -> Any:
        """`lerobot`'s configuration of the policy."""
        return self.policy.config

    @property
    def action_dim(self) -> int:
        """Numbers in an action."""
        return int(self.config.action_feature.shape[0])

    def states(self) -> dict[str, int]:
        """Return the width of each state that it reads, the robot's before the environment's."""
        robot, environment = self.config.robot_state_feature, self.config.env_state_feature
        features = self.config.input_features
        names = [name for part in (robot, environment) for name, feature in features.items() if feature is part]
        return {name: features[name].shape[0] for name in names}

    def images(self) -> dict[str, tuple[int, int, int]]:
        """Return height, width and channels of each image that it reads; lerobot fills empty cameras itself."""
        shapes = {name: feature.shape for name, feature in self.config.image_features.items()}
        read = {name: shape for name, shape in shapes.items() if EMPTY_CAMERA not in name}
        return {name: (height, width, channels) for name, (channels, height, width) in read.items()}


def load_pretrained(
    folder: Path | None, device: torch.device, *, type_name: str | None = None, backbone: Path | None = None
) -> Pretrained:
    """Load what `save_pretrained` of a policy and of its two processors wrote.

    Args:
        folder: Holds `FILES`.
        device: Where the policy is to live.
        type_name: The only type of policy that is wanted ("diffusion"), None for any.
        backbone: Holds configuration and tokenizer of the policy's language model, where it has one; None: where
            lerobot finds them on this machine.

    Raises:
        ConfigError: The folder is no such folder, or its policy is of another type or cannot be used here.
    """
    if folder is None:
        raise ConfigError(f"{FLAG} FOLDER is missing: the folder that lerobot saved the policy in.")
    folder = folder.expanduser().resolve()
    lacking = [name for name in FILES if not (folder / name).is_file()]
    require(
        not lacking,
        f"{FLAG} {folder}: no {', '.join(lacking)} there; lerobot's save_pretrained of the policy and of its pre- and "
        f"postprocessor writes them (older checkpoints: lerobot's migrate_policy_normalization).",
    )
    os.environ["HF_HUB_OFFLINE"] = os.environ["TRANSFORMERS_OFFLINE"] = "1"  # read when the packages are imported
    from lerobot.configs.policies import PreTrainedConfig
    from lerobot.policies.factory import get_policy_class, make_pre_post_processors

    config = PreTrainedConfig.from_pretrained(folder)
    require(
        type_name in (None, config.type), f"{FLAG} {folder}: is a policy of type {config.type}, expected {type_name}."
    )
    config.device = str(device)
    if hasattr(config, "pretrained_backbone_weights"):
        config.pretrained_backbone_weights = None  # would be fetched, only to be replaced by those in the folder
    placed = {"device_processor": {"device": str(device)}}
    if hasattr(config, "vlm_model_name"):
        config.load_vlm_weights = False  # likewise
        if backbone is not None:
            config.vlm_model_name = str(backbone.expanduser().resolve())
            placed["tokenizer_processor"] = {"tokenizer_name": config.vlm_model_name}
    policy = _load_policy(get_policy_class(config.type), folder, config)
    preprocess, postprocess = make_pre_post_processors(
        config, pretrained_path=str(folder), preprocessor_overrides=placed
    )
    return Pretrained(policy, preprocess, postprocess)


def _load_policy(cls: Any, folder: Path, config: Any) -> Any:
    try:
        return cls.from_pretrained(folder, config=config, strict=True)
    except OSError as error:  # of the language model: the policy's own files were there
        model = getattr(config, "vlm_model_name", None)
        if model is None:
            raise
        raise ConfigError(
            f"{FLAG} {folder}: configuration and tokenizer of its language model {model} are not on this machine, and "
            f"nothing is fetched; --policy.backbone-path FOLDER names a folder that has them."
        ) from error


def as_tensor(image_or_state: Any, device: torch.device) -> torch.Tensor:
    """Return an array as lerobot reads it: a state f4[n, d]; an image u1[n, h, w, c] as f4[n, c, h, w] in 0..1."""
    tensor = image_or_state if isinstance(image_or_state, torch.Tensor) else torch.as_tensor(image_or_state.copy())
    tensor = tensor.to(device)
    if tensor.ndim == 4:
        return tensor.permute(0, 3, 1, 2).float() / 255
    return tensor.float()
