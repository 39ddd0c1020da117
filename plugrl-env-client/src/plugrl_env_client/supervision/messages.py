"""What a child process tells its parent, besides how it ended (`Finished`)."""

from typing import NamedTuple

from plugrl_env_client.client import Vital
from plugrl_env_client.reporting.tally import Snapshot

REPORT_SECONDS = 1.0  # between two reports of a child


class Report(NamedTuple):
    """Sent every REPORT_SECONDS.

    Attributes:
        snapshot: the counts of all groups whose envs are made.
        vitals: a sign of life of each of them.
        writing: whether it could go on, or end, if what is recorded were written.
    """

    snapshot: Snapshot
    vitals: tuple[Vital, ...]
    writing: bool


class Said(NamedTuple):
    """A line of the child's log.

    Attributes:
        level: of `logging`.
        text: without a traceback.
    """

    level: int
    text: str
