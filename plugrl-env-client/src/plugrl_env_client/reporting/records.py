"""What a run leaves behind: the summary on the screen, and config.json and summary.json in its folder."""

import contextlib
import dataclasses
import importlib.metadata
import json
import os
import platform
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from plugrl_env_client.options import Run
from plugrl_env_client.recording.durable import publish
from plugrl_env_client.reporting.processes import ProcessStatus, total
from plugrl_env_client.reporting.tally import Snapshot

SUMMARY = "summary.json"
_PACKAGES = (
    "plugrl-env-client",
    "plugrl-protocol",
    "av",
    "gymnasium",
    "h5py",
    "mujoco",
    "numpy",
    "pyarrow",
    "websockets",
)


class RecordsError(Exception):
    """The files of a run cannot be written: the text is for the user."""


def summary_text(outcome: str, snapshot: Snapshot) -> str:
    """What is printed at the end."""
    rate = snapshot.steps / snapshot.seconds if snapshot.seconds > 0 else 0.0
    returns = "" if snapshot.mean_return is None else f", mean return {snapshot.mean_return:.2f}"
    connections = len(snapshot.connections)
    recorded = "" if snapshot.recording is None else f"\nrecorded: {snapshot.recording}"
    paced = "" if snapshot.pacing is None else f"\npace: {snapshot.pacing}"
    return (
        f"{outcome}: {snapshot.steps:,} env steps in {snapshot.seconds:.1f} s ({rate:,.0f} steps/s, "
        f"{snapshot.wait_share:.0%} waiting), {snapshot.episodes:,} episodes{returns}\n"
        f"feedback: {snapshot.feedback_rows:,} rows sent over {connections} "
        f"connection{'' if connections == 1 else 's'}, {snapshot.unconfirmed_rows:,} unconfirmed{recorded}{paced}"
    )


def write_config(folder: Path, run: Run) -> None:
    """Write config.json: the full configuration, versions and seed. The API key is left out.

    A summary that an earlier run of this name has left is removed: it says nothing of this one.

    Raises:
        RecordsError: the folder cannot be written.
    """
    flags = dataclasses.asdict(run.options)
    flags["api_key"] = None if flags["api_key"] is None else "(given)"
    flags["env"] = dataclasses.asdict(run.env_config)
    content = {
        "env": run.uid,
        "seed": run.seed,
        "client_offset": run.offset,
        "options": flags,
        "versions": _versions(),
    }
    with _naming(folder):
        (folder / SUMMARY).unlink(missing_ok=True)
        _write_json(folder / "config.json", content)


def write_summary(folder: Path, outcome: str, exit_code: int, processes: Sequence[ProcessStatus]) -> None:
    """Write summary.json: how the run ended; its counts in all, of each process and of each env.

    Raises:
        RecordsError: the folder cannot be written.
    """
    counted = total(processes).as_json()
    counted["connections"] = [
        {"process": process.index, **dataclasses.asdict(record)}
        for process in processes
        for record in process.snapshot.connections
    ]
    content = {
        "outcome": outcome,
        "exit_code": exit_code,
        "restarts": sum(process.restarts for process in processes),
        **counted,
        "processes": [_process_as_json(process) for process in processes],
        "envs": [env for process in processes for env in process.snapshot.envs_as_json(process.first_env)],
    }
    with _naming(folder):
        _write_json(folder / SUMMARY, content)


def _process_as_json(process: ProcessStatus) -> dict[str, Any]:
    counted = process.snapshot.as_json()
    counted["connections"] = len(process.snapshot.connections)
    return {
        "process": process.index,
        "first_env": process.first_env,
        "num_envs": len(process.snapshot.env_steps),
        "outcome": process.state,
        "restarts": process.restarts,
        **counted,
    }


@contextlib.contextmanager
def _naming(folder: Path) -> Iterator[None]:
    """Say which folder could not be written, and which flag asked for it."""
    try:
        yield
    except OSError as err:
        raise RecordsError(f"--exp-name {folder.name}: {folder} cannot be written: {err.strerror or err}") from err


def _write_json(path: Path, content: dict[str, Any]) -> None:
    """Whole or not at all: an earlier file stays until the new one is safe."""
    path.parent.mkdir(parents=True, exist_ok=True)
    made = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        made.write_text(json.dumps(content, indent=2, default=str, allow_nan=False) + "\n", encoding="utf-8")
        publish(made, path)
    finally:
        made.unlink(missing_ok=True)


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
