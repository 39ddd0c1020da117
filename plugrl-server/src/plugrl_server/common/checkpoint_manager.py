"""Checkpoints on disk: complete or absent, verified, without pickle.

A checkpoint is a folder named by its step:

    <folder>/<step>/manifest.json            format, step, and size and sha256 of every other file
                    model.json  optimizer.json  meta.json                      the trees (see `tree_codec`)
                    model.safetensors  optimizer.safetensors  meta.safetensors the tensors they name, if any

It is written under a temporary name, flushed to disk and renamed, so a folder named by a step is always complete. A
step that is saved again is renamed aside first and found under that name until the new one is in place.
"""

import contextlib
import copy
import dataclasses
import hashlib
import json
import os
import re
import shutil
import textwrap
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from plugrl_server.common import tree_codec

FORMAT = 1
PARTS = ("model", "optimizer", "meta")
MANIFEST = "manifest.json"

_ASIDE = ".replaced-"
_LEFTOVER = (".tmp-", ".pruned-")
_SIZES = re.compile(r"(size mismatch for \S+): .*?torch\.Size\((.*?)\).*?torch\.Size\((.*?)\)")


class CheckpointError(Exception):
    """A checkpoint cannot be saved or loaded; the text names the folder or the part and what is wrong with it."""


@dataclasses.dataclass
class Checkpoint:
    """The whole state of a run between two learn steps.

    Attributes:
        step: The global step.
        model: The policy's `state_dict()`, or None.
        optimizer: A tree of optimizer state, or None.
        meta: Everything else: counters, schedules, normalisers, generators. All three are trees of `tree_codec`.
    """

    step: int
    model: Any = None
    optimizer: Any = None
    meta: Any = dataclasses.field(default_factory=dict)

    def copy(self) -> "Checkpoint":
        """Return a copy that shares no memory with the run; tied tensors stay tied."""
        return copy.deepcopy(self)


def misfit(error: Exception) -> str:
    """Say in one line what does not fit: of networks, whose `load_state_dict` names every parameter, the first one."""
    text = " ".join(str(error).split())
    if (found := _SIZES.search(text)) is None:
        return textwrap.shorten(text, 300, placeholder=" ...")
    what, saved, here = found.groups()
    return f"{what}: {saved} in the checkpoint, {here} here"


@contextlib.contextmanager
def loading(checkpoint: Checkpoint) -> Iterator[None]:
    """Around the taking over of a checkpoint's parts: says what does not fit here.

    Raises:
        CheckpointError: A part is missing, or is that of other networks, buffers or optimizers.
    """
    try:
        yield
    except KeyError as error:
        text = f"Checkpoint {checkpoint.step} has no {error}: another algorithm, or another version of it, saved it."
        raise CheckpointError(text) from error
    except (RuntimeError, ValueError) as error:
        raise CheckpointError(
            f"Checkpoint {checkpoint.step} does not fit this configuration: {misfit(error)}"
        ) from error


class CheckpointManager:
    """The checkpoints of one run.

    Args:
        folder: Holds one folder per step; made when the first checkpoint is saved.
        keep: How many to keep (the newest), None for all.

    Raises:
        ValueError: `keep` is below 1.
    """

    def __init__(self, folder: str | Path, keep: int | None = None) -> None:
        if keep is not None and keep < 1:
            raise ValueError(f"keep must be at least 1, or None for all checkpoints; got {keep}.")
        self.folder = Path(folder)
        self.keep = keep

    def save(self, checkpoint: Checkpoint) -> Path:
        """Write a checkpoint and return its folder; older ones beyond `keep` are removed afterwards.

        Raises:
            CheckpointError: Something in it cannot be stored, or the disk refuses; earlier checkpoints are untouched.
        """
        if type(checkpoint.step) is not int or checkpoint.step < 0:
            raise CheckpointError(f"A checkpoint's step must be an int of at least 0, got {checkpoint.step!r}.")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._sweep()
            temporary = self.folder / f"{_LEFTOVER[0]}{checkpoint.step}-{uuid.uuid4().hex[:8]}"
            try:
                _write(temporary, checkpoint)
                target = self._put_in_place(temporary, checkpoint.step)
            finally:
                shutil.rmtree(temporary, ignore_errors=True)
            self._prune(checkpoint.step)
        except OSError as error:
            raise CheckpointError(
                f"Checkpoint {checkpoint.step} could not be written to {self.folder}: {error}"
            ) from error
        return target

    def load(self, step: int | None = None) -> Checkpoint:
        """Read the checkpoint of a step, the latest by default.

        Raises:
            CheckpointError: There is none, or a part of it is missing or damaged.
        """
        steps = self.steps()
        if not steps:
            raise CheckpointError(f"No checkpoint in {self.folder}.")
        if step is not None and step not in steps:
            raise CheckpointError(
                f"No checkpoint of step {step} in {self.folder}; there are {', '.join(map(str, steps))}."
            )
        return read_checkpoint(self._find(steps[-1] if step is None else step))

    def steps(self) -> list[int]:
        """Return the steps that have a checkpoint, ascending."""
        if not self.folder.is_dir():
            return []
        names = (path.name.removeprefix(_ASIDE) for path in self.folder.iterdir() if path.is_dir())
        return sorted({int(name) for name in names if re.fullmatch(r"[0-9]+", name)})

    def latest(self) -> int | None:
        """Return the latest step that has a checkpoint, or None."""
        return next(reversed(self.steps()), None)

    def _find(self, step: int) -> Path:
        folder = self.folder / str(step)
        return folder if folder.is_dir() else self.folder / f"{_ASIDE}{step}"

    def _put_in_place(self, temporary: Path, step: int) -> Path:
        target, aside = self.folder / str(step), self.folder / f"{_ASIDE}{step}"
        if target.exists():
            target.rename(aside)
        temporary.rename(target)
        _sync(self.folder)
        shutil.rmtree(aside, ignore_errors=True)
        return target

    def _prune(self, saved: int) -> None:
        if self.keep is None:
            return
        for step in [step for step in self.steps() if step != saved][: -self.keep + 1 or None]:
            # Renamed first: a removal that is cut short must not leave half a checkpoint under a step's name.
            doomed = self._find(step).rename(self.folder / f"{_LEFTOVER[1]}{step}-{uuid.uuid4().hex[:8]}")
            shutil.rmtree(doomed, ignore_errors=True)

    def _sweep(self) -> None:
        """Clear what an earlier process left when it was killed. Only a writer does; readers change nothing."""
        for path in list(self.folder.iterdir()):
            if path.name.startswith(_LEFTOVER):
                shutil.rmtree(path, ignore_errors=True)
            elif path.name.startswith(_ASIDE):
                target = self.folder / path.name.removeprefix(_ASIDE)
                if target.exists():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.rename(target)


def read_checkpoint(folder: Path) -> Checkpoint:
    """Read one checkpoint folder, verifying every file against the manifest.

    Raises:
        CheckpointError: A part is missing or damaged; the text names it.
    """
    manifest = _read_json(folder / MANIFEST)
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise CheckpointError(f"{folder / MANIFEST}: expected format {FORMAT}, got {manifest!r:.80}")
    files = manifest.get("files")
    if not isinstance(files, dict) or not {f"{part}.json" for part in PARTS} <= files.keys():
        raise CheckpointError(f"{folder / MANIFEST}: does not list {', '.join(f'{part}.json' for part in PARTS)}.")
    for name, expected in files.items():
        _verify(folder / name, expected)
    trees = {part: _read_part(folder, part, f"{part}.safetensors" in files) for part in PARTS}
    return Checkpoint(step=int(manifest["step"]), **trees)


def _write(folder: Path, checkpoint: Checkpoint) -> None:
    """Write all files of a checkpoint and flush them, the manifest last."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    folder.mkdir()
    for part in PARTS:
        try:
            tree, tensors = tree_codec.encode(getattr(checkpoint, part), part)
        except tree_codec.TreeCodecError as error:
            raise CheckpointError(f"Checkpoint {checkpoint.step} cannot be stored: {error}") from error
        (folder / f"{part}.json").write_text(json.dumps(tree, allow_nan=False), encoding="utf-8")
        if tensors:
            try:
                save_file(tensors, folder / f"{part}.safetensors")
            except SafetensorError as error:  # what it makes of a disk that refuses
                raise OSError(str(error)) from error
    files = {path.name: {"bytes": path.stat().st_size, "sha256": _sha256(path)} for path in sorted(folder.iterdir())}
    manifest = {"format": FORMAT, "step": checkpoint.step, "files": files}
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=2), encoding="utf-8")
    for path in folder.iterdir():
        _sync(path)
    _sync(folder)


def _verify(path: Path, expected: Any) -> None:
    if not path.is_file():
        raise CheckpointError(f"{path} is missing.")
    if path.stat().st_size != expected["bytes"]:
        raise CheckpointError(f"{path} is damaged: {path.stat().st_size} bytes instead of {expected['bytes']}.")
    if _sha256(path) != expected["sha256"]:
        raise CheckpointError(f"{path} is damaged: its sha256 is not the manifest's.")


def _read_part(folder: Path, part: str, has_tensors: bool) -> Any:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        tensors = load_file(folder / f"{part}.safetensors") if has_tensors else {}
        return tree_codec.decode(_read_json(folder / f"{part}.json"), tensors, part)
    except (SafetensorError, tree_codec.TreeCodecError) as error:
        raise CheckpointError(f"{folder}: {part} is damaged: {error}") from error


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise CheckpointError(f"{path} is missing.") from error
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise CheckpointError(f"{path} is damaged: {error}") from error


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
