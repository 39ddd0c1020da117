"""Acting with a trained policy, without a server."""

import dataclasses
import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from plugrl_protocol.spaces import ActionSpace

from plugrl_server.common.checkpoint_manager import CheckpointManager, misfit
from plugrl_server.policy.action_spaces import to_env_actions
from plugrl_server.policy.base_policy import BasePolicy
from plugrl_server.policy.registration import list_policies, make_policy
from plugrl_server.record.config_json import RecordError, config_from_json
from plugrl_server.record.run_record import RunRecord, read_record


class LoadingError(Exception):
    """A run folder holds no policy that can act; the text names the file or the part and what was expected."""


class LoadedPolicy:
    """A trained policy that acts on observations.

    Attributes:
        policy: The policy itself, for batches: `policy.get_action_and_runtime_state(obs)`.
        action_space: The action space the run's clients declared, None when they declared none.
        step: The checkpoint's global step.
    """

    def __init__(self, policy: BasePolicy, action_space: ActionSpace | None, step: int) -> None:
        self.policy = policy
        self.action_space = action_space
        self.step = step

    def act(self, observation: np.ndarray | Mapping[str, Any]) -> np.ndarray:
        """Return the next action of one environment: the first of `chunk`, of the declared shape and dtype.

        Args:
            observation: The state vector [d] of a policy that reads one state; or a map of names to state vectors [d]
                and images u1[h, w, c]; or a map of `images`, `states` and `text`, without a batch axis either.

        Raises:
            ValueError: The observation is not what the policy reads; the text names the key and the width.
        """
        action: np.ndarray = self.chunk(observation)[0]
        return action

    def chunk(self, observation: np.ndarray | Mapping[str, Any]) -> np.ndarray:
        """Return the next H actions of one environment, [H, *action shape]; arguments and errors as `act`."""
        obs = self._one_row(observation)
        if (problem := self.policy.check_observation(obs)) is not None:
            raise ValueError(problem)
        actions: np.ndarray = to_env_actions(self.action_space, self.policy.get_action_and_runtime_state(obs)[0])[0]
        return actions

    def _one_row(self, observation: np.ndarray | Mapping[str, Any]) -> dict[str, Any]:
        """Return an observation of one environment as a batch of one."""
        if not isinstance(observation, Mapping):
            observation = {self._only_state(): observation}
        if not observation.keys() <= {"images", "states", "text"}:
            images = {name: value for name, value in observation.items() if np.ndim(value) == 3}
            states = {name: value for name, value in observation.items() if np.ndim(value) != 3}
            observation = {"images": images, "states": states}
        return {
            "images": {name: np.asarray(image)[None] for name, image in observation.get("images", {}).items()},
            "states": {name: np.reshape(state, (1, -1)) for name, state in observation.get("states", {}).items()},
            "text": np.array([observation.get("text", "")], np.str_),
        }

    def _only_state(self) -> str:
        keys = self.policy.state_keys
        if keys is not None and len(keys) != 1:
            raise ValueError(f"This policy reads {', '.join(keys)}: pass a map of these names to state vectors.")
        return "state" if keys is None else keys[0]


def load_policy(
    run_dir: str | Path, *, step: int | None = None, deterministic: bool = True, device: str = "auto"
) -> LoadedPolicy:
    """Load the policy of a run, without a server.

    Args:
        run_dir: The run folder, which holds `config.json` and `checkpoints/`.
        step: Which checkpoint, the latest by default.
        deterministic: Act without noise.
        device: Torch device.

    Raises:
        LoadingError: The folder is no run folder, its policy cannot be imported, or the weights do not fit it.
        CheckpointError: There is no such checkpoint, or it is damaged.
    """
    folder = Path(run_dir)
    try:
        record = read_record(folder)
        config = _recorded_config(record)
    except RecordError as error:
        raise LoadingError(f"{folder} is no run folder that can be loaded: {error}") from error
    if hasattr(config, "device"):
        config = dataclasses.replace(config, device=device)
    policy = make_policy(record.policy.uid, config)
    checkpoint = CheckpointManager(folder / "checkpoints").load(step)
    if checkpoint.model is not None:
        try:
            policy.load_state_dict(checkpoint.model)  # type: ignore[attr-defined]
        except RuntimeError as error:
            raise LoadingError(
                f"Checkpoint {checkpoint.step} of {folder} does not fit its policy: {misfit(error)}"
            ) from error
    policy.deterministic = deterministic
    space = None if record.declaration is None else record.declaration.action
    return LoadedPolicy(policy, space, checkpoint.step)


def _recorded_config(record: RunRecord) -> Any:
    """Return the configuration the policy was built with, its action space put back from the declaration."""
    part = record.policy
    if part.module is not None and part.module != "__main__":
        try:
            importlib.import_module(part.module)
        except ImportError as error:
            raise LoadingError(f"The policy's module {part.module} cannot be imported: {error}") from error
    variants = list_policies().get(part.uid, {})
    if part.variant not in variants:
        raise LoadingError(
            f"Policy {part.uid} {part.variant} is not registered; import its module ({part.module}) first."
        )
    config = config_from_json(variants[part.variant](), part.config)
    if record.declaration is not None and hasattr(config, "action_space"):
        config = dataclasses.replace(config, action_space=record.declaration.action)
    return config
