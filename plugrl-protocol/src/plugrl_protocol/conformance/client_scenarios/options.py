"""What the client checker is asked to do."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from plugrl_protocol.conformance.probe_env import MAX_WIDTH
from plugrl_protocol.connection import DECLARE, REUSE

FEATURES = (REUSE, DECLARE)
WATCH = ("watch",)
EXACT_DTYPES = ("float32", "float64", "int32", "int64")  # they hold the numbers of the probe's actions


@dataclass(frozen=True)
class ClientOptions:
    """How to grade a client.

    Attributes:
        host: Where to listen.
        port: Where to listen; 0 takes any free port.
        steps: Exchanges until the run is ended.
        horizon: H of the actions.
        action_dim: Elements of an action; 0: actions are numbers, [H,n].
        action_dtype: Their dtype.
        timeout: Seconds to wait for whatever is due from the client.
        scenarios: Names, in the order to run them.
        features: What metadata offers.
        command: The client's command line; None: it is started elsewhere.

    Raises:
        ValueError: A feature is unknown, or the actions cannot carry the numbers of the probe.
    """

    host: str
    port: int
    steps: int
    horizon: int
    action_dim: int
    action_dtype: np.dtype[Any]
    timeout: float
    scenarios: tuple[str, ...]
    features: frozenset[str]
    command: str | None

    def __post_init__(self) -> None:
        unknown = sorted(self.features - set(FEATURES))
        if unknown:
            raise ValueError(f"--features {','.join(unknown)}: expected {', '.join(FEATURES)}")
        if self.scenarios == WATCH:
            return
        if not 1 <= self.action_dim <= MAX_WIDTH:
            raise ValueError(f"--action-dim {self.action_dim}: expected 1 to {MAX_WIDTH} with --probe")
        if self.action_dtype.name not in EXACT_DTYPES:
            expected = ", ".join(EXACT_DTYPES)
            raise ValueError(f"--action-dtype {self.action_dtype.name}: expected one of {expected} with --probe")


def scenario_names(probe: bool, scenario: str | None, features: frozenset[str]) -> tuple[str, ...]:
    """The scenarios that --probe, --scenario and --features ask for; a declaration can also be refused.

    Raises:
        ValueError: A scenario without --probe.
    """
    if not probe:
        if scenario is not None:
            raise ValueError("--scenario needs --probe")
        return WATCH
    if scenario != "all":
        return (scenario or "basic",)
    return ("basic", "resync", "text", *(["reject"] if DECLARE in features else []))
