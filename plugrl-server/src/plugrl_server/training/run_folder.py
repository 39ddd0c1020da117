"""The folder of a run: `<checkpoint-base-dir>/<algo>/<policy>/<name>/`.

Nothing on disk changes before `open`, which is called once the server listens: a start that fails earlier (port in
use, a configuration that cannot work) leaves no folder and keeps the run that `--overwrite` was to replace.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from datetime import datetime
from pathlib import Path
from typing import IO

from plugrl_server.common.checkpoint_manager import CheckpointManager
from plugrl_server.record.results import EPISODES_FILE
from plugrl_server.record.run_record import CONFIG_FILE, RunRecord

LOCK_FILE = ".lock"
_DRAFTS = (f".{CONFIG_FILE}.new", "metrics.new", f".{EPISODES_FILE}.new")  # left by a server that was killed
_FILES = (CONFIG_FILE, "metrics.jsonl", "learning_curve.png", EPISODES_FILE, *_DRAFTS)
_FOLDERS = ("checkpoints", "tensorboard", "clients", "wandb", "swanlab")


class FolderError(Exception):
    """The run folder cannot be used; the text says why and which flag helps."""


def run_name(exp_name: str | None, prefix: str | None, suffix: str | None, now: datetime) -> str:
    """Name of the run: `prefix-name-suffix`, where the name defaults to the time of the start."""
    name = exp_name or now.strftime("%Y-%m-%d_%H-%M-%S")
    return "-".join(part for part in (prefix, name, suffix) if part)


def earlier_runs(parent: Path) -> list[str]:
    """Names of the runs under `<base>/<algo>/<policy>`, the latest first."""
    configs = sorted(parent.glob(f"*/{CONFIG_FILE}"), key=lambda file: file.stat().st_mtime, reverse=True)
    return [file.parent.name for file in configs]


class RunFolder:
    """One run's files, and the lock that keeps a second server out of them.

    Attributes:
        path: The folder.
    """

    def __init__(self, path: Path):
        self.path = path
        self._lock: IO[str] | None = None

    @property
    def checkpoints(self) -> Path:
        """Folder of the checkpoints, one folder per step."""
        return self.path / "checkpoints"

    @property
    def tensorboard(self) -> Path:
        """Folder of the TensorBoard event files."""
        return self.path / "tensorboard"

    @property
    def metrics(self) -> Path:
        """File with one JSON object per learn step."""
        return self.path / "metrics.jsonl"

    @property
    def episodes(self) -> Path:
        """Table with one row for each episode, where the run measured them."""
        return self.path / EPISODES_FILE

    @property
    def learning_curve(self) -> Path:
        """Picture drawn at the end of the run."""
        return self.path / "learning_curve.png"

    @property
    def client_logs(self) -> Path:
        """Folder of the output of the clients that the server started."""
        return self.path / "clients"

    @property
    def begun(self) -> bool:
        """Whether a run got anywhere here: it learned, or it saved a checkpoint past step 0."""
        if self.metrics.is_file() and self.metrics.stat().st_size:
            return True
        return bool(CheckpointManager(self.checkpoints).latest())

    def check_free(self, *, overwrite: bool, resume: bool) -> None:
        """Whether `open` would succeed, without touching anything.

        Raises:
            FolderError: Another run is in the way, there is none to resume, or the folder cannot be used at all.
        """
        try:
            self._check_free(overwrite=overwrite, resume=resume)
        except OSError as error:  # such as a name that is too long, or a folder of another user
            raise FolderError(f"run folder {self.path} cannot be used: {error.strerror or error}") from None

    def _check_free(self, *, overwrite: bool, resume: bool) -> None:
        self._check_unlocked()
        if resume:
            self._check_resumable()
        elif self.path.exists() and not self.path.is_dir():
            raise FolderError(f"{self.path} is a file; choose another --exp-name")
        elif self.begun and not overwrite:
            raise FolderError(
                f"run folder {self.path} already holds a run; --resume continues it, --overwrite replaces it, "
                f"another --exp-name starts beside it"
            )
        elif self._strangers():
            raise FolderError(
                f"run folder {self.path} holds files that are no run's ({', '.join(self._strangers()[:3])}); "
                f"choose another --exp-name"
            )

    def open(self, record: RunRecord, *, resume: bool) -> None:
        """Creates the folder, or empties it of an earlier run, locks it and writes `config.json`.

        Args:
            record: What `config.json` shall say.
            resume: Keep the earlier run's files.

        Raises:
            FolderError: Another server holds the folder, or it cannot be written.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._acquire()
            if not resume:
                self._clear()
            self.write_record(record)
        except OSError as error:
            self.close()
            raise FolderError(f"run folder {self.path} cannot be written: {error.strerror or error}") from None

    def write_record(self, record: RunRecord) -> None:
        """Replaces `config.json` in one step, so that a reader never sees half of it."""
        text = json.dumps(record.to_json(), indent=2, ensure_ascii=False, allow_nan=False)
        draft = self.path / f".{CONFIG_FILE}.new"
        draft.write_text(text + "\n", encoding="utf-8")
        draft.replace(self.path / CONFIG_FILE)

    def close(self) -> None:
        """Lets the next server have the folder."""
        if self._lock is not None:
            self._lock.close()  # the file stays: removing it could let two servers lock two files of one name
            self._lock = None

    def _check_resumable(self) -> None:
        if not (self.path / CONFIG_FILE).is_file():
            runs = ", ".join(earlier_runs(self.path.parent)[:5]) or "none"
            raise FolderError(f"no run to resume at {self.path}; runs there: {runs}")
        if CheckpointManager(self.checkpoints).latest() is None:
            raise FolderError(f"run {self.path} saved no checkpoint to resume from; start it again without --resume")

    def _check_unlocked(self) -> None:
        file = self.path / LOCK_FILE
        if file.is_file():
            with file.open("r+", encoding="utf-8") as handle:
                self._lock_or_refuse(handle)

    def _acquire(self) -> None:
        handle = (self.path / LOCK_FILE).open("a+", encoding="utf-8")
        try:
            self._lock_or_refuse(handle)
        except FolderError:
            handle.close()
            raise
        handle.truncate(0)
        handle.write(f"{os.getpid()}\n")
        handle.flush()
        self._lock = handle

    def _lock_or_refuse(self, handle: IO[str]) -> None:
        if not _lock(handle):
            handle.seek(0)
            owner = handle.read().strip() or "unknown"
            raise FolderError(f"run folder {self.path} is in use by another server (process {owner})")

    def _strangers(self) -> list[str]:
        if not self.path.is_dir():
            return []
        own = {*_FILES, *_FOLDERS, LOCK_FILE}
        return sorted(entry.name for entry in self.path.iterdir() if entry.name not in own)

    def _clear(self) -> None:
        for name in _FILES:
            (self.path / name).unlink(missing_ok=True)
        for name in _FOLDERS:
            if (self.path / name).exists():
                shutil.rmtree(self.path / name)


if sys.platform == "win32":

    def _lock(handle: IO[str]) -> bool:
        import msvcrt

        try:
            msvcrt.locking(handle.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:

    def _lock(handle: IO[str]) -> bool:
        """Takes the file's lock, which the system drops with the process, however it ends."""
        import fcntl

        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True
