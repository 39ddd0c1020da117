"""A policy of lerobot as it is: it acts, and nothing here trains it."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from plugrl_protocol.spaces import ActionSpace
from torch.overrides import TorchFunctionMode

from plugrl_server.common.config_error import ConfigError, require
from plugrl_server.policy.action_spaces import action_dim, to_env_actions
from plugrl_server.policy.base_torch_policy import BaseTorchPolicy
from plugrl_server.policy.key_map import KeyMap
from plugrl_server.policy.lerobot.lerobot_policy_config import LeRobotPolicyConfig
from plugrl_server.policy.lerobot.pretrained import Pretrained, as_tensor, load_pretrained
from plugrl_server.policy.registration import register_policy
from plugrl_server.policy.state import PolicyRuntimeState

logger = logging.getLogger(__name__)

TYPES_WITHOUT_NOISE = frozenset(
    {"act", "diffusion", "groot", "pi0", "pi05", "pi0_fast", "smolvla", "vqbet", "wall_x", "xvla"}
)
"""Types of lerobot (0.4.4) that draw nothing when they act, or only what `WithoutNoise` replaces."""


@register_policy("lerobot-policy")
class LeRobotPolicy(BaseTorchPolicy):
    """Any policy of lerobot that puts out chunks.

    A chunk is what lerobot's `select_action` returns after a reset, step by step, so it starts from the present
    observation alone: the environments of a batch change from call to call, and no history is kept of any.

    It samples as lerobot does, with torch's global generator. `deterministic` takes the noise away; of a type whose
    noise is not known (tdmpc searches by it) this says in the log that it stays.
    """

    config: LeRobotPolicyConfig
    model: Any

    def __init__(self, config: LeRobotPolicyConfig) -> None:
        super().__init__(config)
        config.check()
        self.pretrained = load_pretrained(config.policy_path, self.device, backbone=config.backbone_path)
        self.model = self.pretrained.policy
        _check_memory(self.pretrained, config)
        own = int(getattr(self.pretrained.config, "n_action_steps", 1))
        self.action_horizon = own if config.action_horizon is None else config.action_horizon
        require(
            self.action_horizon <= own,
            f"--policy.action-horizon {self.action_horizon}: this policy's chunks have {own} actions.",
        )
        self.action_dim = self.pretrained.action_dim
        self.key_map = KeyMap.parse(config.key_map)
        self._inputs: dict[str, Any] = {**self.pretrained.states(), **self.pretrained.images()}
        _check_names(self.key_map, self._inputs)
        self._space: ActionSpace | None = None
        self._told_of_noise = False

    def adopt_action_space(self, action_space: ActionSpace) -> None:
        """Clip actions to the declared space from now on.

        Raises:
            ValueError: Its actions have another number of numbers.
        """
        if action_dim(action_space) != self.action_dim:
            raise ValueError(f"action_dim {action_dim(action_space)}, this policy has {self.action_dim}")
        self._space = action_space

    def fake_obs(self, n: int) -> dict[str, Any]:
        """Return an all-zero observation of n environments, of the names and shapes that the key map asks for."""
        images: dict[str, np.ndarray] = {}
        states: dict[str, np.ndarray] = {}
        for key, names in self._sources({"images": {}, "states": {}}).items():
            shape = self._inputs[key]
            if isinstance(shape, tuple):
                images[names[0]] = np.zeros((n, *shape), np.uint8)
            else:  # of states that are joined the first is as wide as all
                states |= {name: np.zeros((n, shape * (name == names[0])), np.float32) for name in names}
        return {"images": images, "states": states, "text": np.zeros(n, "<U1")}

    def check_observation(self, obs: dict[str, Any]) -> str | None:
        """Return what is missing, or of another width or shape than the policy reads."""
        sources = KeyMap(self._sources(obs))
        if (problem := sources.problem(obs)) is not None:
            return problem
        for key, values in sources.read(obs).items():
            expected, shape = self._inputs[key], values.shape[1:]
            if shape != (expected if isinstance(expected, tuple) else (expected,)):
                return f"{key} (from {'+'.join(sources.sources[key])}) is {list(shape)}, the policy reads {expected}"
        return None

    def get_action_and_runtime_state(self, obs: dict[str, Any]) -> tuple[np.ndarray, PolicyRuntimeState]:
        """Return the chunks of n environments, [n, H, *shape]."""
        read = KeyMap(self._sources(obs)).read(obs)
        batch: dict[str, Any] = {key: as_tensor(values, self.device) for key, values in read.items()}
        batch["task"] = [str(text) or self.config.task or "" for text in obs["text"]]
        with torch.inference_mode(), self._noise():
            inputs = self.pretrained.preprocess(batch)
            inputs = {key: value for key, value in inputs.items() if key.startswith(("observation.", "task"))}
            self.model.reset()
            steps = [self.model.select_action(dict(inputs)) for _ in range(self.action_horizon)]
            chunk = torch.stack([self.pretrained.postprocess(step) for step in steps], dim=1)
        return to_env_actions(self._space, chunk.float().cpu().numpy()), None

    def _noise(self) -> contextlib.AbstractContextManager[Any]:
        """Return what to act in: nothing, or, where `deterministic` asks for it, a world without noise."""
        if not self.deterministic:
            return contextlib.nullcontext()
        if (kind := self.pretrained.config.type) in TYPES_WITHOUT_NOISE:
            return WithoutNoise()
        if not self._told_of_noise:
            self._told_of_noise = True
            logger.warning("lerobot-policy cannot take the noise from a policy of type %s: it acts as it samples", kind)
        return contextlib.nullcontext()

    def _sources(self, obs: dict[str, Any]) -> dict[str, tuple[str, ...]]:
        """Return which of our names each of the policy's inputs is read from.

        Without a key map an image has the last part of lerobot's name, or is the only one there; and the robot's state
        is all states, sorted, but those that lerobot's other states are named after.
        """
        if self.key_map.sources:
            return self.key_map.sources
        sources: dict[str, tuple[str, ...]] = {key: (key.rsplit(".", 1)[-1],) for key in self._inputs}
        images = [key for key, shape in self._inputs.items() if isinstance(shape, tuple)]
        if len(images) == len(obs["images"]) == 1:
            sources[images[0]] = tuple(obs["images"])
        taken = {names[0] for names in sources.values()}
        if "observation.state" in sources and (rest := tuple(sorted(set(obs["states"]) - (taken - {"state"})))):
            sources["observation.state"] = rest
        return sources


def _check_memory(pretrained: Pretrained, config: LeRobotPolicyConfig) -> None:
    past = int(pretrained.config.n_obs_steps)
    require(
        past == 1 or config.repeat_observation,
        f"this policy reads the last {past} observations, and one is handed over for each chunk; with "
        f"--policy.repeat-observation the present one stands for all, as at the start of an episode.",
    )
    if getattr(pretrained.config, "temporal_ensemble_coeff", None) is not None:
        raise ConfigError("this policy averages over its earlier chunks (temporal_ensemble_coeff), which is not kept.")


def _check_names(key_map: KeyMap, inputs: dict[str, Any]) -> None:
    if key_map.sources and key_map.sources.keys() != inputs.keys():
        raise ConfigError(
            f"--policy.key-map names {', '.join(key_map.sources)}; this policy reads {', '.join(inputs)}: all of "
            f"these and no other."
        )


# Acting without noise --------------------------------------------------------------------------------------------


class WithoutNoise(TorchFunctionMode):
    """While it is entered, a normal draw is its mean, and a draw from several choices the likeliest of them.

    So a diffusion or flow policy starts from zeros and takes the mean of every step, and one of tokens is greedy.
    """

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Call a function of torch, or what stands for it here."""
        kwargs = kwargs or {}
        if (settled := SETTLED.get(func)) is None:
            return func(*args, **kwargs)
        return settled(*args, **{name: value for name, value in kwargs.items() if name != "generator"})


def _mean_of_normal(mean: Any, std: Any, size: Any = None, **options: Any) -> torch.Tensor:
    """Return what `torch.normal` would, were the deviation 0."""
    if size is None:
        settled: torch.Tensor = mean + 0 * std
        return settled
    return torch.full(size, float(mean), **options)


def _likeliest(weights: torch.Tensor, num_samples: int, replacement: bool = False) -> torch.Tensor:  # noqa: ARG001
    """Return the indices of the largest weights in the place of `torch.multinomial`'s, i8[..., num_samples]."""
    return weights.topk(num_samples, -1).indices


SETTLED: dict[Callable[..., Any], Callable[..., torch.Tensor]] = {
    torch.randn: torch.zeros,
    torch.randn_like: torch.zeros_like,
    torch.normal: _mean_of_normal,
    torch.multinomial: _likeliest,
}
"""What stands for each of torch's functions that draw."""
