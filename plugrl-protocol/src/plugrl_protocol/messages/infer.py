"""`infer`: observations of the envs whose chunk ran out (SPEC 5.2, 10.1, 10.2)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from plugrl_protocol.codec.fields import read_env_indices, read_flags, read_ints, read_key
from plugrl_protocol.errors import blame_peer
from plugrl_protocol.observation import Observation
from plugrl_protocol.spaces import Declaration

_CLAUSE = "5.2 infer/shape"


@dataclass(frozen=True, slots=True, eq=False, init=False)
class Infer:
    """A request for n chunks of actions.

    Attributes:
        observation: n rows; with `reuse`, only the rows that are not reused, in the order of `env_indices`.
        env_indices: int64[n], 0..65,535, no two equal, n >= 1.
        step_ids: int64[n], chunks completed in this episode on this connection.
        reuse: bool[n], true where the env's last feedback observation stands in (SPEC 10.1), or None.
        spaces: The declaration of the first infer of a connection (SPEC 10.2), or None.

    Raises:
        LocalProtocolError: A field has another dtype or shape.
    """

    observation: Observation
    env_indices: np.ndarray
    step_ids: np.ndarray
    reuse: np.ndarray | None = None
    spaces: Declaration | None = None

    def __init__(
        self,
        observation: Observation,
        env_indices: np.ndarray,
        step_ids: np.ndarray,
        reuse: np.ndarray | None = None,
        spaces: Declaration | None = None,
    ) -> None:
        rows = _read_rows(self, env_indices, step_ids, reuse)
        if len(observation.text) != rows:
            raise observation.wrong_rows(rows, "infer.data")
        _set(self, "observation", observation)
        _set(self, "spaces", spaces)

    def to_wire(self) -> dict[str, Any]:
        """The message as it travels."""
        wire: dict[str, Any] = {
            "message_type": "infer",
            "data": self.observation.to_wire(),
            "env_indices": self.env_indices,
            "step_ids": self.step_ids,
        }
        if self.reuse is not None:
            wire["reuse"] = self.reuse
        if self.spaces is not None:
            wire["spaces"] = self.spaces.to_wire()
        return wire

    @classmethod
    @blame_peer
    def from_wire(cls, value: Mapping[str, Any]) -> "Infer":
        """Read the envelope a peer sent.

        Raises:
            RemoteProtocolError: It is no infer.
        """
        infer = object.__new__(cls)
        sent = _read_rows(
            infer,
            read_key(value, "env_indices", "infer", _CLAUSE),
            read_key(value, "step_ids", "infer", _CLAUSE),
            value.get("reuse"),
        )
        data = read_key(value, "data", "infer", _CLAUSE)
        _set(infer, "observation", Observation.parse(data, "infer.data", sent))
        spaces = value.get("spaces")
        declaration = None if spaces is None else Declaration.from_wire(spaces, "infer.spaces")
        _set(infer, "spaces", declaration)
        return infer


def _read_rows(infer: Infer, env_indices: object, step_ids: object, reuse: object) -> int:
    """Validate and set the per-env fields; returns how many rows of observation travel."""
    indices = read_env_indices(env_indices, "infer.env_indices")
    rows = len(indices)
    flags = None if reuse is None else read_flags(reuse, rows, "infer.reuse", "10.1 reuse/shape")
    _set(infer, "env_indices", indices)
    _set(infer, "step_ids", read_ints(step_ids, rows, "infer.step_ids", _CLAUSE))
    _set(infer, "reuse", flags)
    return rows if flags is None else rows - int(np.count_nonzero(flags))


_set = object.__setattr__
