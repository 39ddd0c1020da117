"""What a client counts while it runs, and what remains of it at the end."""

import dataclasses
import time
from collections import deque
from typing import Any

import numpy as np

from plugrl_env_client.recording.counts import RecordingCounts, all_recorded

RECENT_EPISODES = 100


@dataclasses.dataclass
class ConnectionRecord:
    """The accounting of one connection.

    Attributes:
        feedback_rows: rows of feedback sent.
        unconfirmed_rows: how many of them (of the last message) the server may not have read.
        exchanges: completed ones.
        ended: how it ended.
    """

    feedback_rows: int
    unconfirmed_rows: int
    exchanges: int
    ended: str


class Tally:
    """Running counts of one group of envs.

    Attributes:
        steps: env steps (one env, one step).
        episodes: finished ones.
        return_sum: of the finished episodes' returns.
        recent: the last returns, at most RECENT_EPISODES.
        connections: the connections that are over.
        reconnects: how many of them were lost and followed by another attempt.
        started: on the clock of `time.monotonic`.
        waited: seconds spent waiting for actions, on connections that are over.
        waiting: the same on the connection that is open.
    """

    def __init__(self) -> None:
        self.steps = 0
        self.episodes = 0
        self.return_sum = 0.0
        self.recent: deque[float] = deque(maxlen=RECENT_EPISODES)
        self.connections: list[ConnectionRecord] = []
        self.reconnects = 0
        self.started = time.monotonic()
        self.waited = 0.0
        self.waiting = 0.0

    def episodes_ended(self, returns: np.ndarray) -> None:
        """Some envs have finished an episode.

        Args:
            returns: float[k].
        """
        self.episodes += len(returns)
        self.return_sum += float(returns.sum())
        self.recent.extend(returns.tolist())

    def connection_over(self, record: ConnectionRecord, waited: float) -> None:
        """A connection has ended."""
        self.connections.append(record)
        self.waited += waited
        self.waiting = 0.0

    def snapshot(self) -> "Snapshot":
        """The counts as they stand; any thread may ask."""
        return Snapshot(
            seconds=time.monotonic() - self.started,
            steps=self.steps,
            episodes=self.episodes,
            return_sum=self.return_sum,
            recent=tuple(self.recent),
            waited=self.waited + self.waiting,
            connections=tuple(self.connections),
            reconnects=self.reconnects,
        )


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """The counts of one group, or of several together, at one moment."""

    seconds: float
    steps: int
    episodes: int
    return_sum: float
    recent: tuple[float, ...]
    waited: float
    connections: tuple[ConnectionRecord, ...]
    reconnects: int = 0
    groups: int = 1
    recording: RecordingCounts | None = None

    @property
    def mean_return(self) -> float | None:
        """Of all finished episodes; None when there are none."""
        return self.return_sum / self.episodes if self.episodes else None

    @property
    def recent_return(self) -> float | None:
        """Of the last finished episodes; None when there are none."""
        return float(np.mean(self.recent)) if self.recent else None

    @property
    def wait_share(self) -> float:
        """The part of the time that a group spent waiting for actions, 0 to 1."""
        return min(self.waited / (self.seconds * self.groups), 1.0) if self.seconds > 0 else 0.0

    @property
    def feedback_rows(self) -> int:
        """Rows sent on the connections that are over."""
        return sum(record.feedback_rows for record in self.connections)

    @property
    def unconfirmed_rows(self) -> int:
        """Rows that the server may not have read."""
        return sum(record.unconfirmed_rows for record in self.connections)

    def as_json(self) -> dict[str, Any]:
        """For summary.json."""
        recorded = {} if self.recording is None else {"recording": self.recording.as_json()}
        return {
            "seconds": round(self.seconds, 3),
            "steps": self.steps,
            "episodes": self.episodes,
            "mean_return": self.mean_return,
            "wait_share": round(self.wait_share, 4),
            "feedback_rows": self.feedback_rows,
            "unconfirmed_rows": self.unconfirmed_rows,
            "reconnects": self.reconnects,
            "connections": [dataclasses.asdict(record) for record in self.connections],
            **recorded,
        }


def together(snapshots: "list[Snapshot]") -> Snapshot:
    """The counts of several groups, or processes, that ran side by side."""
    recent = [value for snapshot in snapshots for value in snapshot.recent]
    return Snapshot(
        seconds=max((snapshot.seconds for snapshot in snapshots), default=0.0),
        steps=sum(snapshot.steps for snapshot in snapshots),
        episodes=sum(snapshot.episodes for snapshot in snapshots),
        return_sum=sum(snapshot.return_sum for snapshot in snapshots),
        recent=tuple(recent),
        waited=sum(snapshot.waited for snapshot in snapshots),
        connections=tuple(record for snapshot in snapshots for record in snapshot.connections),
        reconnects=sum(snapshot.reconnects for snapshot in snapshots),
        recording=all_recorded([snapshot.recording for snapshot in snapshots]),
        groups=max(sum(snapshot.groups for snapshot in snapshots), 1),
    )
