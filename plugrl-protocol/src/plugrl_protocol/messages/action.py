"""`action`: one chunk of actions an env (SPEC 5.3)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from plugrl_protocol.codec.fields import MAX_ENVS, describe, mismatch, read_ints, read_key, read_map
from plugrl_protocol.errors import LocalProtocolError, blame_peer

_CLAUSE = "5.3 action/shape"


@dataclass(frozen=True, slots=True, eq=False)
class Action:
    """The answer to an infer.

    Attributes:
        action: Numeric or bool [H,n,*da], time-major, H >= 1.
        env_ids: int64[n], the infer's env_indices in the same order; None only from a server that leaves it out.

    Raises:
        LocalProtocolError: A field has another dtype or shape.
    """

    action: np.ndarray
    env_ids: np.ndarray | None

    def __post_init__(self) -> None:
        action = self.action
        if not isinstance(action, np.ndarray) or action.dtype.kind not in "biuf" or action.ndim < 2:
            raise mismatch(_CLAUSE, "action.data.action", "number[H,n,...]", action)
        if len(action) == 0:
            raise LocalProtocolError(_CLAUSE, f"action.data.action: expected at least one step, got {describe(action)}")
        if action.shape[1] > MAX_ENVS:
            raise LocalProtocolError(_CLAUSE, f"action.data.action: expected at most {MAX_ENVS} envs on axis 1")
        if not action.dtype.isnative:
            object.__setattr__(self, "action", action.astype(action.dtype.newbyteorder("=")))
        if self.env_ids is not None:
            env_ids = read_ints(self.env_ids, action.shape[1], "action.data.env_ids", "4.3 action/env-ids")
            object.__setattr__(self, "env_ids", env_ids)

    def to_wire(self) -> dict[str, Any]:
        """The message as it travels."""
        data: dict[str, Any] = {} if self.env_ids is None else {"env_ids": self.env_ids}
        data["action"] = self.action
        return {"message_type": "action", "data": data}

    @classmethod
    @blame_peer
    def from_wire(cls, value: Mapping[str, Any]) -> "Action":
        """Read the envelope a peer sent.

        Raises:
            RemoteProtocolError: It is no action.
        """
        data = read_map(read_key(value, "data", "action", _CLAUSE), "action.data", _CLAUSE)
        return cls(read_key(data, "action", "action.data", _CLAUSE), data.get("env_ids"))
