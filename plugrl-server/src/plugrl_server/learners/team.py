"""The other learners as the server sees them: which runs they can share, what they build, when they are done."""

from __future__ import annotations

from typing import Any, NamedTuple

from plugrl_server.algorithm.collectives import Collectives, LearnersLost
from plugrl_server.algorithm.distributed import DDPAlgorithm
from plugrl_server.algorithm.registration import ALGORITHMS, list_algos
from plugrl_server.assembly import Selection
from plugrl_server.common.config_error import require


class Build(NamedTuple):
    """Rank 0 has built its algorithm: build the same one, and take over its state.

    Attributes:
        selection: With every dimension filled.
        seed: Seed of Python, NumPy and Torch.
        threads: Torch's threads.
    """

    selection: Selection
    seed: int
    threads: int


class Done(NamedTuple):
    """The run has ended."""


class Team:
    """What rank 0 tells the other learners, besides the learn steps that its algorithm sends them.

    Args:
        collectives: Reaches them.
    """

    def __init__(self, collectives: Collectives) -> None:
        self._collectives = collectives
        self._algorithm: Any = None

    def build(self, selection: Selection, seed: int, algorithm: Any) -> None:
        """Have every learner build what rank 0 has built, and give them its state.

        Args:
            selection: What `algorithm` was built from.
            seed: The seed it was built with.
            algorithm: A `DDPAlgorithm`, restored where a run is resumed.

        Raises:
            LearnersLost: A learner is gone.
        """
        import torch

        self._collectives.broadcast(Build(selection, seed, torch.get_num_threads()))
        algorithm.join(self._collectives)
        self._algorithm = algorithm

    def dismiss(self) -> bool:
        """Let the learners end; returns whether they were told.

        They are not where a learn step failed or was abandoned: being in the middle of it, they see this process end.
        """
        if self._algorithm is not None and self._algorithm.in_step:
            return False
        try:
            self._collectives.broadcast(Done())
        except LearnersLost:  # whoever started them says which one, and why
            return False
        return True


def check_can_share(selection: Selection, learners: int) -> None:
    """Check that several learners can share a run; a class that cannot be had is left to `assembly.check`.

    Raises:
        ConfigError: The algorithm learns in one process, or a mini-batch has fewer rows than there are learners.
    """
    flag, config = f"--learners {learners}", selection.algo_config
    if _shares(selection.algo_uid) is False:
        able = ", ".join(uid for uid in list_algos() if _shares(uid)) or "none"
        require(
            False,
            f"{flag}: {selection.algo_uid} learns in one process; these share their learn steps: {able}. "
            f"One of your own does so by the hooks of DDPAlgorithm.",
        )
    batch_size = getattr(config, "batch_size", None)
    require(
        batch_size is None or learners <= batch_size,
        f"{flag}: a mini-batch of --algo.batch-size {batch_size} cannot be split into {learners}.",
    )
    require(
        not getattr(config, "concurrent", False),
        f"{flag}: --algo.concurrent already learns in a process of its own; use one or the other.",
    )


def _shares(uid: str) -> bool | None:
    """Return whether an algorithm has the hooks; None where its class needs an extra, or an import, that is missing."""
    try:
        return issubclass(ALGORITHMS.get_class(uid), DDPAlgorithm)
    except (ImportError, KeyError):
        return None
