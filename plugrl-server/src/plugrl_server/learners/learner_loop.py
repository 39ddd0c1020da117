"""What a learner other than rank 0 does: build what it is told, learn when it is told, end with the run."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from typing import Any

from plugrl_server import assembly
from plugrl_server.algorithm.collectives import Collectives, LearnersLost
from plugrl_server.algorithm.distributed import Learn
from plugrl_server.learners.team import Build, Done

FAILED = 1


def run(collectives: Collectives) -> int:
    """Follows rank 0 to the end and returns the exit code.

    It is 0 also when another learner is gone: whoever started the processes names that one, or rank 0 has ended.
    """
    try:
        follow(collectives)
    except LearnersLost:
        return 0
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(frame.filename).name}, line {frame.lineno}"
        sys.stderr.write(f"error: learner {collectives.rank}: {type(error).__name__}: {error} ({place})\n")
        return FAILED
    return 0


def follow(collectives: Collectives) -> None:
    """Does what rank 0 says until it says that the run is done.

    Raises:
        LearnersLost: Another learner is gone.
    """
    algorithm: Any = None
    while not isinstance(message := collectives.broadcast(), Done):
        if isinstance(message, Build):
            algorithm = _built(message)
            algorithm.join(collectives)
        elif isinstance(message, Learn):
            algorithm.learn_batch(message.batch)


def _built(message: Build) -> Any:
    import torch

    torch.set_num_threads(message.threads)
    return assembly.build(message.selection, seed=message.seed)
