"""Checkpoints are complete or absent, verified, and never the cause of losing an older one (lessons 20 and 21)."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
import torch
from plugrl_server.common.checkpoint_manager import (
    Checkpoint,
    CheckpointError,
    CheckpointManager,
    loading,
    misfit,
)
from safetensors import SafetensorError


def checkpoint(step, value=0.0):
    return Checkpoint(
        step=step,
        model={"weight": torch.full((2, 3), value)},
        optimizer={"state": {0: {"step": torch.tensor(float(step))}}, "lr": 0.1},
        meta={"iteration": step, "rng": np.arange(3)},
    )


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_checkpoint_round_trips(tmp_path):
    manager = CheckpointManager(tmp_path / "checkpoints")
    folder = manager.save(checkpoint(10, 1.5))
    assert folder == tmp_path / "checkpoints" / "10"
    loaded = manager.load()
    assert loaded.step == 10
    assert torch.equal(loaded.model["weight"], torch.full((2, 3), 1.5))
    assert loaded.optimizer["state"][0]["step"].item() == 10
    assert loaded.meta["rng"].tolist() == [0, 1, 2]


def test_parts_may_be_none(tmp_path):
    manager = CheckpointManager(tmp_path)
    manager.save(Checkpoint(step=0))
    loaded = manager.load()
    assert (loaded.step, loaded.model, loaded.optimizer, loaded.meta) == (0, None, None, {})


def test_steps_are_numbers_and_the_latest_is_the_default(tmp_path):
    manager = CheckpointManager(tmp_path)
    assert (manager.steps(), manager.latest()) == ([], None)
    for step in (9, 100, 20):
        manager.save(checkpoint(step))
    assert (manager.steps(), manager.latest()) == ([9, 20, 100], 100)
    assert manager.load().step == 100
    assert manager.load(9).step == 9


def test_what_is_not_there_is_named(tmp_path):
    manager = CheckpointManager(tmp_path / "none")
    with pytest.raises(CheckpointError, match=r"No checkpoint in .*none"):
        manager.load()
    manager.save(checkpoint(1))
    with pytest.raises(CheckpointError, match=r"No checkpoint of step 7 in .*; there are 1\."):
        manager.load(7)


def test_the_manifest_names_every_file_with_its_hash(tmp_path):
    folder = CheckpointManager(tmp_path).save(checkpoint(1))
    listed = json.loads((folder / "manifest.json").read_text())["files"]
    assert sorted(listed) == sorted(set(names(folder)) - {"manifest.json"})
    assert all(len(entry["sha256"]) == 64 for entry in listed.values())


def test_nothing_is_pickled(tmp_path):
    folder = CheckpointManager(tmp_path).save(checkpoint(1))
    assert {path.suffix for path in folder.iterdir()} == {".json", ".safetensors"}


@pytest.mark.parametrize(
    "part", ["manifest.json", "model.json", "model.safetensors", "optimizer.safetensors", "meta.json"]
)
@pytest.mark.parametrize("damage", ["missing", "cut", "flipped"])
def test_a_damaged_or_partial_checkpoint_is_refused_with_the_name_of_the_part(tmp_path, part, damage):
    manager = CheckpointManager(tmp_path)
    file = manager.save(checkpoint(1)) / part
    content = file.read_bytes()
    if damage == "missing":
        file.unlink()
    elif damage == "cut":
        file.write_bytes(content[:-1])
    else:
        file.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    with pytest.raises(CheckpointError, match=part.replace(".", r"\.")):
        manager.load()


def test_a_manifest_that_lists_too_little_is_refused(tmp_path):
    manager = CheckpointManager(tmp_path)
    file = manager.save(checkpoint(1)) / "manifest.json"
    for content in ({"format": 2}, {"format": 1, "step": 1, "files": {}}, []):
        file.write_text(json.dumps(content))
        with pytest.raises(CheckpointError, match=r"manifest\.json"):
            manager.load()


def test_what_cannot_be_stored_is_refused_and_leaves_the_older_one_alone(tmp_path):
    manager = CheckpointManager(tmp_path)
    manager.save(checkpoint(1))
    with pytest.raises(CheckpointError, match=r"Checkpoint 2 cannot be stored: meta\.sampler: builtins\.object"):
        manager.save(Checkpoint(step=2, meta={"sampler": object()}))
    assert names(tmp_path) == ["1"]


@pytest.mark.parametrize("step", [-1, 1.0, True, "1"])
def test_a_step_is_a_count(tmp_path, step):
    with pytest.raises(CheckpointError, match="step must be an int"):
        CheckpointManager(tmp_path).save(Checkpoint(step=step))


def test_keep_prunes_the_oldest(tmp_path):
    manager = CheckpointManager(tmp_path, keep=2)
    for step in (1, 2, 3, 4):
        manager.save(checkpoint(step))
    assert names(tmp_path) == ["3", "4"]


def test_keep_never_prunes_what_was_just_saved(tmp_path):
    CheckpointManager(tmp_path).save(checkpoint(100))
    CheckpointManager(tmp_path, keep=1).save(checkpoint(5))
    assert names(tmp_path) == ["5"]


@pytest.mark.parametrize("keep", [0, -1])
def test_keep_is_at_least_one(tmp_path, keep):
    with pytest.raises(ValueError, match="keep must be at least 1"):
        CheckpointManager(tmp_path, keep=keep)


def test_a_step_can_be_saved_again(tmp_path):
    manager = CheckpointManager(tmp_path)
    manager.save(checkpoint(1, 1.0))
    manager.save(checkpoint(1, 2.0))
    assert names(tmp_path) == ["1"]
    assert manager.load().model["weight"][0, 0] == 2


def test_leftovers_of_a_killed_process_are_ignored_and_cleared_by_the_next_save(tmp_path):
    manager = CheckpointManager(tmp_path)
    manager.save(checkpoint(1))
    (tmp_path / ".tmp-2-abcd").mkdir()
    (tmp_path / ".tmp-2-abcd" / "model.json").write_text("half")
    (tmp_path / ".pruned-0-abcd").mkdir()
    (tmp_path / "notes.txt").write_text("not a checkpoint")
    assert manager.steps() == [1]
    manager.save(checkpoint(3))
    assert names(tmp_path) == ["1", "3", "notes.txt"]


def test_a_step_renamed_aside_when_the_process_was_killed_is_still_found(tmp_path):
    manager = CheckpointManager(tmp_path)
    manager.save(checkpoint(1, 7.0)).rename(tmp_path / ".replaced-1")
    assert manager.steps() == [1]
    assert manager.load().model["weight"][0, 0] == 7
    manager.save(checkpoint(2))
    assert names(tmp_path) == ["1", "2"]


def test_a_disk_that_refuses_is_reported(tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(CheckpointError, match="Checkpoint 1 could not be written to"):
        CheckpointManager(file).save(checkpoint(1))


def test_a_disk_that_fills_up_under_the_tensors_is_reported(tmp_path, monkeypatch):
    def full(tensors, file):
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    manager = CheckpointManager(tmp_path)
    manager.save(checkpoint(1))
    monkeypatch.setattr("safetensors.torch.save_file", full)
    with pytest.raises(CheckpointError, match=r"Checkpoint 2 could not be written to .*No space left on device"):
        manager.save(checkpoint(2))
    assert names(tmp_path) == ["1"]


def test_a_part_that_must_not_be_read_is_named(tmp_path, monkeypatch):
    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    manager = CheckpointManager(tmp_path)
    manager.save(checkpoint(1))
    monkeypatch.setattr(pathlib.Path, "read_bytes", refuse)
    with pytest.raises(CheckpointError, match=r"manifest.json cannot be read: Permission denied"):
        manager.load()


def test_a_copy_shares_no_memory_and_keeps_ties():
    weight = torch.ones(2)
    original = Checkpoint(step=1, model={"a": weight, "b": weight}, meta={"rng": np.zeros(1)})
    copied = original.copy()
    weight.zero_()
    assert copied.model["a"].tolist() == [1, 1]
    assert copied.model["a"] is copied.model["b"]


class Killed(BaseException):
    """Stands for kill -9: from here on nothing the process does reaches the disk."""


def kill_at(monkeypatch, moment):
    """Let the process die at its `moment`-th change of the disk; returns the list that counts them."""
    changes = []

    def deadly(function):
        def call(*args, **kwargs):
            changes.append(function)
            if len(changes) >= moment:
                raise Killed
            return function(*args, **kwargs)

        return call

    for holder, name in [(pathlib.Path, "rename"), (pathlib.Path, "mkdir"), (pathlib.Path, "write_text")]:
        monkeypatch.setattr(holder, name, deadly(getattr(holder, name)))
    monkeypatch.setattr(shutil, "rmtree", deadly(shutil.rmtree))
    monkeypatch.setattr(os, "fsync", deadly(os.fsync))
    return changes


@pytest.mark.parametrize("saved_again", [False, True])
def test_death_at_any_change_of_the_disk_leaves_a_loadable_checkpoint(tmp_path, monkeypatch, saved_again):
    """Lesson 21, exhaustively: whatever the last change was that reached the disk, the old or the new one loads."""
    for moment in range(1, 100):
        folder = tmp_path / str(moment)
        CheckpointManager(folder, keep=1).save(checkpoint(1, 1.0))
        with monkeypatch.context() as patch:
            kill_at(patch, moment)
            try:
                CheckpointManager(folder, keep=1).save(checkpoint(1 if saved_again else 2, 2.0))
                finished = True
            except Killed:
                finished = False
        loaded = CheckpointManager(folder).load()
        assert loaded.model["weight"][0, 0] in (1, 2)
        CheckpointManager(folder, keep=1).save(checkpoint(3))
        assert names(folder) == ["3"]
        if finished:
            assert moment > 15
            return
    pytest.fail("the save never finished")


PROGRAM = """
import sys, torch
from plugrl_server.common.checkpoint_manager import Checkpoint, CheckpointManager

manager = CheckpointManager(sys.argv[1], keep=2)
for number in range(1_000_000):
    step = number // 2
    manager.save(Checkpoint(step=step, model={"w": torch.full((20_000,), float(step))}))
    print(step, flush=True)
"""


def test_kill_9_leaves_a_loadable_checkpoint(tmp_path):
    """Lesson 21 with a real process, which saves every step twice."""
    with subprocess.Popen([sys.executable, "-c", PROGRAM, str(tmp_path)], stdout=subprocess.PIPE, text=True) as process:
        for _ in range(9):
            process.stdout.readline()
        process.send_signal(signal.SIGKILL)
    loaded = CheckpointManager(tmp_path).load()
    assert loaded.step >= 4
    assert torch.equal(loaded.model["w"], torch.full((20_000,), float(loaded.step)))


def test_of_networks_that_do_not_fit_the_first_parameter_is_named_with_both_shapes():
    made = [torch.nn.Sequential(torch.nn.Linear(3, width), torch.nn.Linear(width, 1)) for width in (4, 5)]
    with pytest.raises(CheckpointError) as refused, loading(Checkpoint(step=7)):
        made[1].load_state_dict(made[0].state_dict())
    assert str(refused.value) == (
        "Checkpoint 7 does not fit this configuration: size mismatch for 0.weight: "
        "[4, 3] in the checkpoint, [5, 3] here"
    )


def test_a_long_reason_is_cut_between_words_and_a_short_one_is_whole():
    assert misfit(ValueError("of\n  another size")) == "of another size"
    cut = misfit(RuntimeError("Missing key(s): " + ", ".join(f"layer.{i}" for i in range(100))))
    assert len(cut) <= 300
    assert cut.endswith(", ...")
