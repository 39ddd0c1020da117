"""How long a child has shown no sign of life."""

from collections.abc import Sequence

from plugrl_env_client.client import Vital


class Pulse:
    """Of one life of a child: each of its groups has to take steps, unless it waits.

    Only the time in which the parent listens counts: while it was stopped itself, nobody could have been heard.

    Args:
        groups: how many the child has, as soon as their envs are made, one group after the other.

    Attributes:
        started: every group has taken a step.
        waits: at the last report no group was at work, and none had taken a step since the one before.
    """

    def __init__(self, groups: int = 1) -> None:
        self._groups = groups
        self.started = False
        self.waits = False
        self._vitals: Sequence[Vital] = ()
        self._quiet = [0.0]  # seconds, of each group; the last of the child, as long as it makes envs

    def heard(self, vitals: Sequence[Vital]) -> None:
        """The child has reported.

        Args:
            vitals: one of each group whose envs are made.
        """
        if len(vitals) != len(self._vitals):
            self._vitals = [Vital(0, busy=True)] * len(vitals)
            self._quiet = [0.0] * min(len(vitals) + 1, self._groups)
        stepped = [now.steps != before.steps for before, now in zip(self._vitals, vitals, strict=True)]
        for group, vital in enumerate(vitals):
            if stepped[group] or not vital.busy:
                self._quiet[group] = 0.0
        self.started = self.started or (bool(vitals) and all(vital.steps for vital in vitals))
        self.waits = len(vitals) == self._groups and not any(stepped) and not any(vital.busy for vital in vitals)
        self._vitals = vitals

    def passed(self, seconds: float) -> None:
        """So much time has gone by."""
        self._quiet = [quiet + seconds for quiet in self._quiet]

    @property
    def quiet(self) -> float:
        """Seconds since the last sign of life of the group that has been quiet for longest."""
        return max(self._quiet)
