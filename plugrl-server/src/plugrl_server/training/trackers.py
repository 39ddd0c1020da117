"""Where metrics go: metrics.jsonl and TensorBoard always, Weights & Biases and SwanLab when asked."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from plugrl_server.run_config import TrackConfig, UsageError
from plugrl_server.training.metrics import as_number

logger = logging.getLogger(__name__)


class Tracker(Protocol):
    """One destination of metrics."""

    name: str

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Takes the metrics of one step."""

    def close(self) -> None:
        """Hands over what is still buffered."""


class Trackers:
    """Several trackers as one; one that fails is named once and left out from then on, the run goes on.

    Args:
        trackers: The destinations.
    """

    def __init__(self, trackers: Sequence[Tracker]):
        self._trackers = list(trackers)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Passes the metrics of one step to every tracker."""
        self._each(lambda tracker: tracker.log(step, metrics))

    def close(self) -> None:
        """Closes every tracker."""
        self._each(lambda tracker: tracker.close())
        self._trackers = []

    def _each(self, action: Callable[[Tracker], None]) -> None:
        for tracker in tuple(self._trackers):
            try:
                action(tracker)
            except Exception as error:  # whatever a tracker's library raises must not end the run
                logger.warning("%s failed and is off from here on: %s: %s", tracker.name, type(error).__name__, error)
                self._trackers.remove(tracker)


class TensorBoard:
    """Scalars for `tensorboard --logdir`.

    Args:
        folder: Where the event files go.
        last_step: When a run is resumed: later points of the earlier event files are hidden.
    """

    name = "TensorBoard"

    def __init__(self, folder: Path, *, last_step: int | None = None):
        from torch.utils.tensorboard import SummaryWriter

        purge = None if last_step is None else last_step + 1
        self._writer = SummaryWriter(str(folder), purge_step=purge)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Adds one point to each curve."""
        for name, value in _finite(metrics).items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Flushes the event file."""
        self._writer.close()


class Wandb:
    """Weights & Biases.

    Args:
        name: Name of the run.
        config: Content of `config.json`.
        folder: The run folder.
        track: Project, team and whether to record on this disk only.
    """

    name = "wandb"

    def __init__(self, name: str, config: Mapping[str, Any], folder: Path, track: TrackConfig):
        wandb = importlib.import_module("wandb")
        self._run = wandb.init(
            project=track.project,
            entity=track.entity,
            name=name,
            config=dict(config),
            dir=str(folder),
            mode="offline" if track.offline else "online",
        )

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Sends the metrics of one step."""
        self._run.log(_finite(metrics), step=step)

    def close(self) -> None:
        """Ends the upload."""
        self._run.finish()


class Swanlab:
    """SwanLab; the arguments are those of `Wandb`."""

    name = "swanlab"

    def __init__(self, name: str, config: Mapping[str, Any], folder: Path, track: TrackConfig):
        self._swanlab = importlib.import_module("swanlab")
        self._swanlab.init(
            project=track.project,
            workspace=track.entity,
            experiment_name=name,
            config=dict(config),
            logdir=str(folder / "swanlab"),
            mode="offline" if track.offline else "cloud",
        )

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Sends the metrics of one step."""
        self._swanlab.log(_finite(metrics), step=step)

    def close(self) -> None:
        """Ends the upload."""
        self._swanlab.finish()


def opened_trackers(
    track: TrackConfig, name: str, config: Mapping[str, Any], folder: Path, *, last_step: int | None = None
) -> list[Tracker]:
    """TensorBoard and whatever else was asked for, as far as it can be opened.

    Args:
        track: The flags.
        name: Name of the run.
        config: Content of `config.json`.
        folder: The run folder.
        last_step: When a run is resumed: the checkpoint's step.
    """
    trackers = _opened(lambda: TensorBoard(folder / "tensorboard", last_step=last_step), TensorBoard.name)
    if track.wandb:
        trackers += _opened(lambda: Wandb(name, config, folder, track), Wandb.name)
    if track.swanlab:
        trackers += _opened(lambda: Swanlab(name, config, folder, track), Swanlab.name)
    return trackers


def preload() -> None:
    """Imports what opening TensorBoard needs, which takes a second or more, before there are clients to wait for it."""
    with contextlib.suppress(ImportError):  # told when it is opened
        importlib.import_module("torch.utils.tensorboard")


def check_packages(track: TrackConfig) -> None:
    """Refuses trackers whose package is not installed.

    Raises:
        UsageError: With the command that installs it.
    """
    for package, wanted in (("wandb", track.wandb), ("swanlab", track.swanlab)):
        if wanted and importlib.util.find_spec(package) is None:
            command = f"pip install 'plugrl-server[{package}]'"
            raise UsageError(f"--track.{package} needs the package {package}, which is not installed: {command}")


def _opened(make: Callable[[], Tracker], name: str) -> list[Tracker]:
    """The tracker in a list, or an empty list and one warning when it cannot be opened."""
    try:
        return [make()]
    except Exception as error:  # a tracker that cannot start must not keep the run from starting
        logger.warning("%s cannot be opened, the run goes on without it: %s: %s", name, type(error).__name__, error)
        return []


def _finite(metrics: Mapping[str, float]) -> dict[str, float]:
    numbers = {name: as_number(value) for name, value in metrics.items()}
    return {name: number for name, number in numbers.items() if number is not None}
