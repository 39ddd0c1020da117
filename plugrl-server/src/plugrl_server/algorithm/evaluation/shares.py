"""Which episodes count, so that short ones are not counted more often than long ones.

Of many environments that run side by side, those with short episodes finish more of them: the first N to finish are a
biased sample. So each environment has a share of the N, as equal as shares go, and its first episodes count up to that
share, however long they take. Which episodes count then depends on nothing that happens in them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from plugrl_server.algorithm.feedback_rows import Client


@dataclasses.dataclass(frozen=True)
class Episode:
    """A whole episode.

    Attributes:
        client: Number of the connection, in the order in which they came.
        env: Index of the environment on that connection.
        reward: The return.
        length: Environment steps, None where the client does not say.
        success: None where the client does not say.
        seed: None where the client does not say.
    """

    client: int
    env: int
    reward: float
    length: int | None = None
    success: bool | None = None
    seed: int | None = None


def even_shares(total: int, parts: int) -> list[int]:
    """Return `total` divided among `parts` as equally as it goes, the first getting one more."""
    return [total // parts + (part < total % parts) for part in range(parts)]


def shares(total: int, finished: Sequence[int], is_open: Sequence[bool]) -> list[int]:
    """Return how many episodes of each environment count.

    Args:
        total: Episodes that are wanted.
        finished: Episodes each environment has finished.
        is_open: Whether more of it can come. Of one that is gone no more counts than it has finished, and no more than
            it would have been its share; what it owes is divided among the others.
    """
    if not finished:
        return []
    result = [min(share, done) for share, done in zip(even_shares(total, len(finished)), finished, strict=True)]
    living = [env for env, alive in enumerate(is_open) if alive]
    owed = total - sum(share for share, alive in zip(result, is_open, strict=True) if not alive)
    for env, share in zip(living, even_shares(owed, len(living)) if living else (), strict=True):
        result[env] = share
    return result


class Ledger:
    """The episodes of all environments, and how far each has come with its share.

    Args:
        total: Episodes that are wanted.
    """

    def __init__(self, total: int) -> None:
        self.total = total
        self.episodes: list[Episode] = []
        self._clients: list[Client] = []
        self._complete: list[Episode] | None = None

    def join(self, client: Client) -> None:
        """Take a connection in."""
        self._clients.append(client)

    def number(self, client: Client) -> int:
        """Return a connection's number; one that nobody told of is taken in."""
        for number, known in enumerate(self._clients):
            if known is client:
                return number
        self.join(client)
        return len(self._clients) - 1

    def add(self, episode: Episode) -> None:
        """Take an episode that has ended."""
        self.episodes.append(episode)

    def restore(self, episodes: Sequence[Episode]) -> None:
        """Take the episodes of an earlier part of the run, whose connections are gone."""
        for number in range(max((episode.client for episode in episodes), default=-1) + 1):
            envs = {episode.env for episode in episodes if episode.client == number}
            self._clients.append(Client(tuple(sorted(envs)), is_open=False))
        self.episodes += episodes

    def is_complete(self) -> bool:
        """Return whether every environment has finished its share, and the shares are all that is wanted.

        Once it is so, it stays so: the connections that leave when the run ends change no share any more.
        """
        if self._complete is None and len(self.episodes) >= self.total:
            counted = self.counted()
            self._complete = counted if len(counted) == self.total else None
        return self._complete is not None

    def counted(self) -> list[Episode]:
        """Return the episodes that count, in the order in which they ended."""
        if self._complete is not None:
            return self._complete
        envs, finished, is_open = self._standing()
        left = dict(zip(envs, shares(self.total, finished, is_open), strict=True))
        counted = []
        for episode in self.episodes:
            env = (episode.client, episode.env)
            if left[env] > 0:
                left[env] -= 1
                counted.append(episode)
        return counted

    def _standing(self) -> tuple[list[tuple[int, int]], list[int], list[bool]]:
        """Return every environment (client, env), how many episodes it has finished, and whether more can come."""
        finished: dict[tuple[int, int], int] = {
            (number, env): 0 for number, client in enumerate(self._clients) for env in client.envs
        }
        for episode in self.episodes:
            env = (episode.client, episode.env)
            finished[env] = finished.get(env, 0) + 1
        envs = sorted(finished)
        return envs, [finished[env] for env in envs], [self._clients[number].is_open for number, _ in envs]
