"""What the client checker is asked to do."""

from dataclasses import dataclass
from typing import Any

import numpy as np


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
