"""How old observations were when something was done about them: quantiles of any number of ages in little memory."""

import dataclasses
import math
from collections import Counter
from collections.abc import Iterable

_STEP = math.log(1.02)  # bins are 2 % wide: a quantile is right within 1 %
_SHORTEST = 1e-6


@dataclasses.dataclass
class Ages:
    """A histogram with logarithmic bins.

    Attributes:
        bins: how many ages fell into each bin.
        longest: the largest age, exactly, in seconds.
    """

    bins: Counter[int] = dataclasses.field(default_factory=Counter)
    longest: float = 0.0

    def add(self, age: float) -> None:
        """Count one age, in seconds."""
        self.bins[round(math.log(max(age, _SHORTEST)) / _STEP)] += 1
        self.longest = max(self.longest, age)

    def quantile(self, share: float) -> float | None:
        """The age that `share` (0 to 1) of all ages do not exceed, within 1 %; None when there are none."""
        total = sum(self.bins.values())
        seen = 0
        for index in sorted(self.bins):
            seen += self.bins[index]
            if seen >= share * total:
                return min(math.exp(index * _STEP), self.longest)
        return None

    def copy(self) -> "Ages":
        """Of its own."""
        return Ages(self.bins.copy(), self.longest)

    @staticmethod
    def together(several: "Iterable[Ages]") -> "Ages":
        """The ages of several."""
        counted = Ages()
        for ages in several:
            counted.bins += ages.bins
            counted.longest = max(counted.longest, ages.longest)
        return counted
