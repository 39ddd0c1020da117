"""The flags of recording (`--recorder.*`)."""

import dataclasses
import importlib.util
from pathlib import Path
from typing import Literal

from plugrl_env_client.envs.base_env import EnvError
from plugrl_env_client.registration import install_command

DEFAULT_FPS = 30

FormatName = Literal["video", "frames", "npz", "minari", "lerobot"]

_NEEDS: dict[str, tuple[str, tuple[str, ...]]] = {  # format: its extra, and the modules which that brings
    "video": ("video", ("av",)),
    "minari": ("minari", ("h5py",)),
    "lerobot": ("lerobot-dataset", ("pyarrow", "av")),
}


class RecordingError(EnvError):
    """Envs cannot be recorded as the flags ask: the text is for the user."""


class RecordingFailedError(EnvError):
    """Recording has ended, and the run depends on it: the text is for the user."""


@dataclasses.dataclass
class RecorderOptions:
    """What is kept of the episodes that are run. Nothing unless a format is given."""

    format: tuple[FormatName, ...] = ()
    """One or several: video (mp4), frames (PNG), npz, minari (dataset), lerobot (dataset, v3)."""

    folder: Path | None = None
    """Where recordings go; what is there is added to. None: `recording` in the folder of --exp-name."""

    every: int = 1
    """Record every N-th episode of each env: 1 records all, 10 the first, the eleventh and so on."""

    envs: tuple[int, ...] = ()
    """Which envs to record, by their index over all processes. None given: all of them."""

    image_keys: tuple[str, ...] = ()
    """Which images to record. None given: all of them."""

    fps: int | None = None
    """Frames per second of videos and datasets. None: those of --runner.fps, rounded, or 30."""

    overflow: Literal["wait", "drop"] = "wait"
    """When writing is slower than the envs: wait holds them up, drop leaves whole episodes out and counts them. Waiting
    ends, and so does recording, when nothing has been written for --hang-timeout seconds."""

    queue_mib: int = 256
    """Memory of one process for what the writer has not got to, in MiB. States, actions and text of the episodes under
    way are kept beside it."""

    required: bool = False
    """End the run when something cannot be written. Otherwise recording ends, with a warning, and the run goes on."""

    lerobot_images: Literal["video", "png"] = "video"
    """How a lerobot dataset keeps images: as mp4 (small) or as PNG in its tables (exact)."""

    @property
    def on(self) -> bool:
        """Whether anything is to be recorded."""
        return bool(self.format)

    def check(self, num_envs: int, *, has_folder: bool) -> None:
        """Refuse what cannot work.

        Args:
            num_envs: of the whole run.
            has_folder: whether the run has a folder of its own (--exp-name).

        Raises:
            RecordingError: names the flag.
        """
        if not self.on:
            self._check_unused()
            return
        if self.folder is None and not has_folder:
            raise RecordingError("--recorder.format: expected --recorder.folder or --exp-name, where recordings go")
        for flag, value in (("every", self.every), ("fps", self.fps), ("queue-mib", self.queue_mib)):
            if value is not None and value < 1:
                raise RecordingError(f"--recorder.{flag} {value}: expected at least 1")
        if self.fps is not None and not {"video", "lerobot"} & set(self.format):
            raise RecordingError(f"--recorder.fps {self.fps}: only with --recorder.format video or lerobot")
        if self.lerobot_images != "video" and "lerobot" not in self.format:
            raise RecordingError(
                f"--recorder.lerobot-images {self.lerobot_images}: only with --recorder.format lerobot"
            )
        for env in self.envs:
            if not 0 <= env < num_envs:
                raise RecordingError(
                    f"--recorder.envs {env}: expected 0 to {num_envs - 1}, the run has {num_envs} envs"
                )
        for name in self.format:
            self._check_extra(name)

    def _check_unused(self) -> None:
        default = RecorderOptions()
        for field in dataclasses.fields(self):
            if getattr(self, field.name) != getattr(default, field.name):
                flag = field.name.replace("_", "-")
                raise RecordingError(f"--recorder.{flag}: expected --recorder.format too, or nothing is recorded")

    def _check_extra(self, name: str) -> None:
        extra, modules = _NEEDS.get(name, ("", ()))
        if name == "lerobot" and self.lerobot_images == "png":
            modules = ("pyarrow",)
        for module in modules:
            if importlib.util.find_spec(module) is None:
                raise RecordingError(f"--recorder.format {name} needs the extra {extra}: {install_command(extra)}")
