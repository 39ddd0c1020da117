"""The policy of another run: where its checkpoint is, how it was configured, and its weights."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from plugrl_server.common.checkpoint_manager import MANIFEST, CheckpointError, CheckpointManager, misfit
from plugrl_server.common.config_error import ConfigError, require
from plugrl_server.record.config_changes import changes
from plugrl_server.record.config_json import RecordError
from plugrl_server.record.run_record import CONFIG_FILE, RunRecord, read_record

CHECKPOINTS = "checkpoints"
FLAG = "--algo.policy-checkpoint-path"


@dataclasses.dataclass(frozen=True)
class TrainedPolicy:
    """A checkpoint of a run.

    Attributes:
        run: The run folder.
        step: The checkpoint's global step.
    """

    run: Path
    step: int

    def record(self) -> RunRecord:
        """Return what the run folder says of the run.

        Raises:
            ConfigError: Its `config.json` cannot be read.
        """
        try:
            return read_record(self.run)
        except RecordError as error:
            raise ConfigError(f"{FLAG}: {error}") from error

    def load_into(self, policy: Any) -> None:
        """Give a policy the checkpoint's weights, normaliser included.

        Raises:
            ConfigError: They are another policy's, or one's of another size; the text names both.
            CheckpointError: The checkpoint is damaged, or holds no weights.
        """
        recorded = self.record().policy
        model = CheckpointManager(self.run / CHECKPOINTS).load(self.step).model
        if model is None:
            raise CheckpointError(f"{FLAG}: checkpoint {self.step} of {self.run} holds no weights ({recorded.uid}).")
        if not hasattr(policy, "load_state_dict"):
            raise ConfigError(f"{FLAG}: {type(policy).__name__} takes no weights; {self.run} is a {recorded.uid}.")
        try:
            policy.load_state_dict(model)
        except (RuntimeError, KeyError, TypeError, ValueError) as error:
            differing = ", ".join(changes(recorded, policy.config, "policy")) or "no flag"
            raise ConfigError(
                f"{FLAG}: checkpoint {self.step} of {self.run} ({recorded.uid} {recorded.variant}, "
                f"{recorded.class_name}) does not fit this {type(policy).__name__}.\n"
                f"differs from what it was trained with: {differing}\n{misfit(error)}"
            ) from error


def find_trained_policy(path: Path) -> TrainedPolicy:
    """Return the checkpoint that a path means: a step folder, or the latest step of a run folder.

    Raises:
        ConfigError: It is neither; the text says what is there.
    """
    path = path.expanduser().resolve()
    if not path.is_dir():
        raise ConfigError(f"{FLAG} {path}: there is no such folder.")
    if (path / MANIFEST).is_file() and path.name.isdigit():
        return TrainedPolicy(_run_of(path.parent), int(path.name))
    run = _run_of(path) if path.name == CHECKPOINTS else path
    if not (run / CONFIG_FILE).is_file():
        raise ConfigError(
            f"{FLAG} {path}: is neither a run folder ({CONFIG_FILE}, {CHECKPOINTS}/) nor one of its steps "
            f"({CHECKPOINTS}/<step>)."
        )
    step = CheckpointManager(run / CHECKPOINTS).latest()
    if step is None:
        raise ConfigError(f"{FLAG} {path}: that run has saved no checkpoint.")
    return TrainedPolicy(run, step)


def require_weights(what: str, path: Path | None, uid: str, config: Any, why: str) -> None:
    """Refuse weights that nobody trained, where there is neither a checkpoint of another run nor a trained policy.

    Args:
        what: What needs them.
        path: The run or the step that they come from; None where the user names none.
        uid: The policy's name.
        config: Its configuration, which says whether it brings weights of its own.
        why: What is wrong with random ones, and what to do instead.

    Raises:
        ConfigError: The text names the flag.
    """
    require(
        path is not None or bool(getattr(config, "brings_weights", False)),
        f"{what} needs {FLAG} RUN_FOLDER: {uid} brings no weights of its own, and {why}.",
    )


def _run_of(checkpoints: Path) -> Path:
    run = checkpoints.parent
    if not (run / CONFIG_FILE).is_file():
        raise ConfigError(f"{FLAG}: {run} has no {CONFIG_FILE}, which says how the policy was configured.")
    return run
