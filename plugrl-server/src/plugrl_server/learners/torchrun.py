"""Torchrun as what starts the learners: the one module that knows how their processes come to be and find each other.

The process of the command itself becomes torchrun's agent. It runs the same command again once per learner, passes
the signals it gets on to rank 0, which stops cleanly as any server does, and ends with rank 0's exit code. Where a
learner dies, the agent ends the others, and the command fails with its name. A command that somebody else's torchrun
started (on several machines, perhaps) is a learner at once.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

from plugrl_server.algorithm.collectives import TorchCollectives
from plugrl_server.common.config_error import require
from plugrl_server.interrupts import stop_signals
from plugrl_server.learners import learner_loop
from plugrl_server.learners.team import Team

FAILED = 1
FOR_EVER = timedelta(days=1000)
"""How long a learner waits for the next learn step."""

_is_member = False  # of torch.distributed's groups, which have threads of their own

_RANK_FILE, _ADDED = "PLUGRL_RANK_0_FILE", "PLUGRL_ADDED_VARIABLES"
_FROM_TORCHRUN = (
    *("RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "ROLE_NAME"),
    *("WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"),
    *("TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_ERROR_FILE"),
    *("TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_SIGNALS_TO_HANDLE", "TORCH_NCCL_ASYNC_ERROR_HANDLING"),
)


class Place(NamedTuple):
    """Which process of a run this is.

    Attributes:
        rank: Number of the learner; 0 is the server.
        started: Whether torchrun has started it; if not, it is still to be launched.
    """

    rank: int
    started: bool


# In every process of the command ---------------------------------------------------------------------------------


def place(learners: int) -> Place:
    """Return which process of a run of that many learners this is; rank 0 tells the agent that it is there.

    Raises:
        ConfigError: Torchrun started another number of processes.
    """
    if learners == 1 or "TORCHELASTIC_RUN_ID" not in os.environ:
        return Place(0, started=False)
    size, rank = int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])
    require(size == learners, f"--learners {learners}: torchrun started {size} processes; the two must be equal.")
    if rank == 0 and _RANK_FILE in os.environ:
        Path(os.environ[_RANK_FILE]).write_text(str(os.getpid()))
        _end_with_agent()
    return Place(rank, started=True)


@contextlib.contextmanager
def team(device: str) -> Iterator[Team]:
    """Meet the other learners as rank 0, and let them end with the run.

    Args:
        device: The policy's, as the flag gives it.
    """
    team = Team(_join(device))
    yield team
    if team.dismiss():
        _leave()


def learn(device: str) -> int:
    """Be a learner other than rank 0 until the run ends, and return the exit code.

    Args:
        device: The policy's, as the flag gives it.
    """
    code = learner_loop.run(_join(device))
    if code == 0:
        _leave()
    return code


def _join(device: str) -> TorchCollectives:
    """Meet the other learners; what torchrun put into the environment is taken out, for started clients would read it.

    Every learner takes a GPU of its own, over nccl, where the machine has enough; else they share what there is, over
    gloo.
    """
    import torch.distributed

    global _is_member
    here, number = int(os.environ["LOCAL_WORLD_SIZE"]), int(os.environ["LOCAL_RANK"])
    gpus = torch.cuda.device_count() if device in ("auto", "cuda") else 0
    if gpus:
        torch.cuda.set_device(number % gpus)
    torch.distributed.init_process_group("cpu:gloo,cuda:nccl" if gpus >= here else "gloo")
    _is_member = True
    control = torch.distributed.new_group(backend="gloo", timeout=FOR_EVER)
    for name in (*_FROM_TORCHRUN, *os.environ.pop(_ADDED, "").split(), _RANK_FILE):
        os.environ.pop(name, None)
    return TorchCollectives(control)


def _leave() -> None:
    import torch.distributed

    global _is_member
    torch.distributed.destroy_process_group()
    _is_member = False


def end(code: int) -> None:
    """End this process with that exit code where it has not left the others, as after a failure.

    To leave them then may take for ever, and where threads of gloo live on, the interpreter's end now and then aborts.
    """
    if _is_member:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _end_with_agent() -> None:
    """Have this process stop cleanly, by SIGTERM, when its agent is killed and can pass no signal on; on Linux."""
    try:
        agent = os.pidfd_open(os.getppid())
    except (AttributeError, OSError):
        return

    def watch() -> None:
        select.select([agent], [], [])  # readable once the process has ended
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="watch-agent", daemon=True).start()


# In the process that becomes the agent ---------------------------------------------------------------------------


def this_command(argv: Sequence[str] | None) -> list[str]:
    """Return the command to run again.

    Args:
        argv: Words that the program was handed in place of the process's own; None where they are the process's own,
            whose way of starting is kept (`python -c "import ...; main()"`, `python my_server.py`).
    """
    if argv is None:
        return [sys.executable, *sys.orig_argv[1:]]
    return [sys.executable, "-m", "plugrl_server.cli", *argv]


def launch(command: Sequence[str], learners: int) -> int:
    """Run a command as that many learners and return the exit code: rank 0's, or 1 where another learner failed."""
    import torch.distributed

    require(torch.distributed.is_available(), f"--learners {learners}: this build of torch has no torch.distributed.")
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import parse_args
    from torch.distributed.run import run as torchrun

    for name in ("torch.distributed.elastic", "torch.distributed.run"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # what went wrong is said below, once
    with tempfile.TemporaryDirectory(prefix="plugrl-learners-") as folder:
        rank_file = Path(folder) / "rank-0"
        _prepare_environment(learners, rank_file)
        flags = ["--standalone", "--local-addr=127.0.0.1", f"--nproc-per-node={learners}", f"--log-dir={folder}"]
        # Rank 0 stops cleanly, and in its own time: torchrun's own way is to kill all after 30 s.
        flags += ["--signals-to-handle=SIGQUIT", "--no-python"]
        words = [word.replace("$", "$$") for word in command]  # torchrun fills in ${local_rank}
        try:
            with _passing_signals(rank_file):
                torchrun(parse_args([*flags, *words]))  # type: ignore[no-untyped-call]
        except ChildFailedError as error:
            return _conclude(error.failures)
    return 0


def _prepare_environment(learners: int, rank_file: Path) -> None:
    """Set what the learners need, noting what was not there before so that no client of the run inherits it."""
    defaults = {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // learners))}
    if sys.platform == "linux":
        defaults["GLOO_SOCKET_IFNAME"] = "lo"
    added = {name: value for name, value in defaults.items() if name not in os.environ}
    os.environ.update(added, **{_ADDED: " ".join(added), _RANK_FILE: str(rank_file)})


@contextlib.contextmanager
def _passing_signals(rank_file: Path) -> Iterator[None]:
    """Pass signals on to rank 0; before it is there, they end the command."""

    def passed(number: int, _: Any) -> None:
        if not rank_file.exists():
            raise KeyboardInterrupt
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(rank_file.read_text()), number)

    before = {number: signal.signal(number, passed) for number in stop_signals()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _conclude(failures: Mapping[int, Any]) -> int:
    """Name the learners that failed by themselves, and return the command's exit code.

    Args:
        failures: Rank -> exit code and pid of each process that did not exit with 0. One that the agent ended, since
            another had failed, has the code of SIGTERM.
    """
    learners = {rank: failure for rank, failure in sorted(failures.items()) if rank != 0}
    culprits = {rank: failure for rank, failure in learners.items() if failure.exitcode != -signal.SIGTERM}
    if not culprits and 0 not in failures:
        culprits = learners
    for rank, failure in culprits.items():
        sys.stderr.write(f"error: learner {rank} (process {failure.pid}) {_ending(failure.exitcode)}\n")
    if culprits:
        return FAILED
    code = int(failures[0].exitcode)
    return code if code > 0 else 128 - code


def _ending(code: int) -> str:
    return f"exited with {code}" if code > 0 else f"was ended by {signal.Signals(-code).name}"
