"""What a client counts while it runs, and what remains of it at the end."""

import dataclasses
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from plugrl_env_client.pacing.counts import PacingCounts, all_paced
from plugrl_env_client.recording.counts import RecordingCounts, all_recorded
from plugrl_env_client.reporting.figures import EpisodeFigures, side_by_side

RECENT_EPISODES = 100
OPEN = "open"  # how a connection ended that has not
_PENDING_ROWS = 1024  # episodes' rows are taken into the figures this many at a time


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


class OpenConnection(Protocol):
    """What is counted on a connection while it is open (see `ConnectionRecord`).

    Attributes:
        waited: seconds spent waiting for actions.
    """

    feedback_rows: int
    unconfirmed_rows: int
    exchanges: int
    waited: float


class Tally:
    """Running counts of one group of envs.

    Args:
        num_envs: n.

    Attributes:
        steps: env steps (one env, one step).
        episodes: finished ones.
        recent: the last returns, at most RECENT_EPISODES.
        connections: the connections that are over.
        reconnects: how many of them were lost and followed by another attempt.
        started: on the clock of `time.monotonic`.
        waited: seconds spent waiting for actions, on connections that are over.
        pacing: how well time was kept, where the envs run in real time.
    """

    def __init__(self, num_envs: int) -> None:
        self.steps = 0
        self.episodes = 0
        self.recent: deque[float] = deque(maxlen=RECENT_EPISODES)
        self.connections: list[ConnectionRecord] = []
        self.reconnects = 0
        self.started = time.monotonic()
        self.waited = 0.0
        self.pacing: PacingCounts | None = None
        self._num_envs = num_envs
        self._open: OpenConnection | None = None
        self._resets_in_step = np.zeros(num_envs, np.int64)
        self._figures = EpisodeFigures.none(num_envs)
        self._pending: deque[tuple[np.ndarray, ...]] = deque()  # episodes that the figures lack
        self._folding = threading.Lock()

    def episodes_ended(
        self, envs: np.ndarray, returns: np.ndarray, lengths: np.ndarray, successes: np.ndarray | None
    ) -> None:
        """Some envs have finished an episode.

        Args:
            envs: int64[k].
            returns: float64[k].
            lengths: int64[k].
            successes: bool[k]; None: nobody knows.
        """
        self.episodes += len(envs)
        self.recent.extend(returns.tolist())
        judged = np.full(len(envs), successes is not None)
        self._pending.append((envs, returns, lengths, judged, judged if successes is None else successes))
        if len(self._pending) >= _PENDING_ROWS:
            self._figures_until_now()

    def reset_in_step(self, envs: np.ndarray) -> None:
        """In the last step of all envs some, int64[k], did not run but began an episode."""
        self._resets_in_step[envs] += 1

    def connection_open(self, connection: OpenConnection) -> None:
        """A connection is in use from now on."""
        self._open = connection

    def connection_over(self, record: ConnectionRecord, waited: float) -> None:
        """It has ended."""
        self._open = None
        self.connections.append(record)
        self.waited += waited

    def snapshot(self) -> "Snapshot":
        """The counts as they stand; any thread may ask."""
        steps, resets, connection = self.steps, self._resets_in_step.copy(), self._open
        rounds = (steps + int(resets.sum())) // max(self._num_envs, 1)  # in each of which every env ran or began anew
        return Snapshot(
            seconds=time.monotonic() - self.started,
            steps=steps,
            env_steps=rounds - resets,
            figures=self._figures_until_now(),
            recent=tuple(self.recent),
            waited=self.waited + (0.0 if connection is None else connection.waited),
            connections=(*self.connections, *([] if connection is None else [_as_it_stands(connection)])),
            reconnects=self.reconnects,
            pacing=None if self.pacing is None else self.pacing.copy(),
        )

    def _figures_until_now(self) -> EpisodeFigures:
        with self._folding:
            rows = [self._pending.popleft() for _ in range(len(self._pending))]
            if rows:
                columns = (np.concatenate(column) for column in zip(*rows, strict=True))
                self._figures = self._figures.merged(EpisodeFigures.of(self._num_envs, *columns))
            return self._figures


def _as_it_stands(connection: OpenConnection) -> ConnectionRecord:
    return ConnectionRecord(connection.feedback_rows, connection.unconfirmed_rows, connection.exchanges, OPEN)


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """The counts of one group, or of several together, at one moment.

    Attributes:
        seconds: since the group began.
        steps: env steps, over all envs.
        env_steps: int64[n], of each env.
        figures: of the n envs' finished episodes.
        recent: the last returns.
        waited: seconds spent waiting for actions.
        connections: those that are over, and the one that is open.
        reconnects: how many were lost and followed by another attempt.
        groups: how many groups these counts are of.
        recording: what was recorded.
        pacing: how well time was kept.
    """

    seconds: float
    steps: int
    env_steps: np.ndarray
    figures: EpisodeFigures
    recent: tuple[float, ...] = ()
    waited: float = 0.0
    connections: tuple[ConnectionRecord, ...] = ()
    reconnects: int = 0
    groups: int = 1
    recording: RecordingCounts | None = None
    pacing: PacingCounts | None = None

    @property
    def episodes(self) -> int:
        """Finished ones, of all envs."""
        return int(self.figures.episodes.sum())

    @property
    def mean_return(self) -> float | None:
        """Of all finished episodes; None when there are none."""
        return float(self.figures.total().returns.mean[0]) if self.episodes else None

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
        """Rows sent."""
        return sum(record.feedback_rows for record in self.connections)

    @property
    def unconfirmed_rows(self) -> int:
        """Rows that the server may not have read."""
        return sum(record.unconfirmed_rows for record in self.connections)

    def as_json(self) -> dict[str, Any]:
        """All envs together, for summary.json."""
        recorded = {} if self.recording is None else {"recording": self.recording.as_json()}
        paced = {} if self.pacing is None else {"pacing": self.pacing.as_json()}
        return {
            "seconds": round(self.seconds, 3),
            "steps": self.steps,
            **self.figures.total().as_json(),
            "wait_share": round(self.wait_share, 4),
            "feedback_rows": self.feedback_rows,
            "unconfirmed_rows": self.unconfirmed_rows,
            "reconnects": self.reconnects,
            "connections": [dataclasses.asdict(record) for record in self.connections],
            **recorded,
            **paced,
        }

    def envs_as_json(self, first_env: int) -> list[dict[str, Any]]:
        """Each env, for summary.json.

        Args:
            first_env: the number of the first one.
        """
        return [
            {"env": first_env + env, "steps": int(steps), **self.figures.as_json(env)}
            for env, steps in enumerate(self.env_steps)
        ]

    def cut_off(self, how: str) -> "Snapshot":
        """The last counts of a process that died: how its open connections ended."""
        ended = (
            dataclasses.replace(record, ended=how) if record.ended == OPEN else record for record in self.connections
        )
        return dataclasses.replace(self, connections=tuple(ended))

    def followed_by(self, later: "Snapshot") -> "Snapshot":
        """The counts of the same envs in two lives of their process."""
        return Snapshot(
            seconds=self.seconds + later.seconds,
            steps=self.steps + later.steps,
            env_steps=self.env_steps + later.env_steps,
            figures=self.figures.merged(later.figures),
            recent=(*self.recent, *later.recent)[-RECENT_EPISODES:],
            waited=self.waited + later.waited,
            connections=(*self.connections, *later.connections),
            reconnects=self.reconnects + later.reconnects,
            groups=max(self.groups, later.groups),
            recording=all_recorded([self.recording, later.recording]),
            pacing=all_paced([self.pacing, later.pacing]),
        )


def nothing_yet(num_envs: int) -> Snapshot:
    """The counts of n envs that have not been stepped."""
    return Snapshot(seconds=0.0, steps=0, env_steps=np.zeros(num_envs, np.int64), figures=EpisodeFigures.none(num_envs))


def together(snapshots: Sequence[Snapshot]) -> Snapshot:
    """The counts of several groups, or processes, that ran side by side: their envs in this order."""
    if not snapshots:
        return nothing_yet(0)
    return Snapshot(
        seconds=max(snapshot.seconds for snapshot in snapshots),
        steps=sum(snapshot.steps for snapshot in snapshots),
        env_steps=np.concatenate([snapshot.env_steps for snapshot in snapshots]),
        figures=side_by_side([snapshot.figures for snapshot in snapshots]),
        recent=tuple(value for snapshot in snapshots for value in snapshot.recent),
        waited=sum(snapshot.waited for snapshot in snapshots),
        connections=tuple(record for snapshot in snapshots for record in snapshot.connections),
        reconnects=sum(snapshot.reconnects for snapshot in snapshots),
        groups=sum(snapshot.groups for snapshot in snapshots),
        recording=all_recorded([snapshot.recording for snapshot in snapshots]),
        pacing=all_paced([snapshot.pacing for snapshot in snapshots]),
    )
