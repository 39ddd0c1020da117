"""How one process of a run is doing, for whoever shows or writes it down."""

import dataclasses
from collections.abc import Sequence

from plugrl_env_client.reporting.tally import Snapshot, together


@dataclasses.dataclass(frozen=True)
class ProcessStatus:
    """One process at one moment, or at its end.

    Attributes:
        index: of the process, from 0.
        first_env: how many envs of the run come before its own.
        state: what it does, or how it ended.
        snapshot: what it has counted, over all its lives.
        restarts: how often it was started again.
        is_alive: whether there is a process at this moment.
    """

    index: int
    first_env: int
    state: str
    snapshot: Snapshot
    restarts: int = 0
    is_alive: bool = True

    @property
    def envs(self) -> str:
        """Which envs it has: the first and the last one."""
        last = self.first_env + len(self.snapshot.env_steps) - 1
        return f"{self.first_env}" if last == self.first_env else f"{self.first_env}-{last}"


def total(processes: Sequence[ProcessStatus]) -> Snapshot:
    """The counts of all processes together."""
    return together([process.snapshot for process in processes])
