"""Files that are whole or not there, whenever the process is killed: written elsewhere, synced, renamed.

Folders are not synced: after a power cut the last files may be missing, but none is half there.
Everything in the making lies in a scratch folder beside the results. A killed process leaves its own behind, which the
next one removes.
"""

import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from plugrl_env_client.recording.recorder_options import RecordingError

_SCRATCH = ".partial"
_LOCK = "lock"


class Scratch:
    """A process's own folder for what is in the making, on the file system of the results.

    Args:
        folder: of the results.

    Attributes:
        path: the folder.
        made: how many files or folders have been begun in it.
    """

    def __init__(self, folder: Path) -> None:
        above = folder / _SCRATCH
        above.mkdir(parents=True, exist_ok=True)
        with locked(above / _LOCK):
            _remove_orphans(above)
            self.path = above / f"{os.getpid()}-{os.urandom(4).hex()}"
            self.path.mkdir()
            self._lock = (self.path / _LOCK).open("w")
            fcntl.flock(self._lock, fcntl.LOCK_EX)
        self.made = 0

    def new(self, suffix: str = "") -> Path:
        """A path that nothing has been written to."""
        self.made += 1
        return self.path / f"{self.made}{suffix}"

    def close(self) -> None:
        """Remove what was never finished."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()


def publish(made: Path, target: Path) -> None:
    """Put a finished file or folder in its place: after this it survives, before this it is not there.

    A file replaces what is at `target`; a folder must be new.
    """
    if made.is_dir():
        for file in sorted(made.rglob("*")):
            if file.is_file():
                _sync(file)
    else:
        _sync(made)
    target.parent.mkdir(parents=True, exist_ok=True)
    made.replace(target)


def publish_json(content: dict[str, Any], target: Path, scratch: Scratch) -> None:
    """Write a JSON file, or replace one."""
    made = scratch.new(".json")
    made.write_text(json.dumps(content), encoding="utf-8")
    publish(made, target)


def read_json(path: Path) -> dict[str, Any] | None:
    """What `publish_json` has written; None where nothing is there.

    Raises:
        RecordingError: something else is there.
    """
    if not path.exists():
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as err:  # neither JSON nor UTF-8
        raise RecordingError(f"{path}: expected JSON: {err}") from None
    if not isinstance(content, dict):
        raise RecordingError(f"{path}: expected a JSON object, got a {type(content).__name__}")
    return content


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep other processes that ask for the same lock out. The file stays behind, empty."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def size_of(path: Path) -> int:
    """Bytes in a file, or in the files of a folder."""
    files = path.rglob("*") if path.is_dir() else (path,)
    return sum(file.stat().st_size for file in files if file.is_file())


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _remove_orphans(above: Path) -> None:
    """A process holds the lock in its folder for as long as it lives."""
    for folder in above.iterdir():
        if not folder.is_dir():
            continue
        try:
            with (folder / _LOCK).open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        shutil.rmtree(folder, ignore_errors=True)
