"""How a run's envs, steps and episodes are divided: among processes, and among the groups of each."""

import dataclasses

from plugrl_env_client.options import ClientOptions


@dataclasses.dataclass(frozen=True)
class Share:
    """What one process, or one group of it, runs of the whole.

    Attributes:
        index: the process, or the group within its process, from 0.
        first_env: how many envs of the run come before it.
        num_envs: how many it runs.
        num_steps: its part of --num-steps.
        num_episodes: its part of --num-episodes.
    """

    index: int
    first_env: int
    num_envs: int
    num_steps: int | None
    num_episodes: int | None

    @property
    def envs(self) -> str:
        """Which envs these are, for the user."""
        last = self.first_env + self.num_envs - 1
        return f"env {last}" if self.num_envs == 1 else f"envs {self.first_env} to {last}"

    def divided(self, parts: int) -> "list[Share]":
        """Divide envs, steps and episodes, as evenly as they go; the envs keep their order."""
        envs = _divide(self.num_envs, parts)
        steps = _divide_or_none(self.num_steps, parts)
        episodes = _divide_or_none(self.num_episodes, parts)
        return [
            Share(index, self.first_env + sum(envs[:index]), envs[index], steps[index], episodes[index])
            for index in range(parts)
        ]


def whole(options: ClientOptions) -> Share:
    """All of a run."""
    return Share(0, 0, options.num_envs, options.num_steps, options.num_episodes)


def shares(options: ClientOptions) -> list[Share]:
    """The share of each of `options.num_procs` processes."""
    return whole(options).divided(options.num_procs)


def _divide(total: int, parts: int) -> list[int]:
    return [total // parts + (index < total % parts) for index in range(parts)]


def _divide_or_none(total: int | None, parts: int) -> "list[int] | list[None]":
    return [None] * parts if total is None else _divide(total, parts)
