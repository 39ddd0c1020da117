"""`feedback`: how the chunks that finished went (SPEC 5.4)."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from plugrl_protocol.codec.fields import (
    read_closed_map,
    read_env_indices,
    read_flags,
    read_floats,
    read_ints,
    read_key,
    read_map,
)
from plugrl_protocol.errors import blame_peer
from plugrl_protocol.info import InfoRows
from plugrl_protocol.observation import Observation

_KEYS = frozenset({"obs", "rewards", "terminated", "truncated", "info"})
_CLAUSE = "5.4 feedback/shape"


@dataclass(frozen=True, slots=True, eq=False, init=False)
class Feedback:
    """The outcome of m chunks, one an env.

    Attributes:
        env_indices: int64[m], 0..65,535, no two equal, m >= 1.
        step_ids: int64[m], as in the infer.
        observation: m rows, the last step's own.
        rewards: float32[m], summed over the steps run of the chunk; NaN and inf may come.
        terminated: bool[m], of the last step.
        truncated: bool[m], of the last step.
        info: Any map that can be split into m rows (see `InfoRows`).

    Raises:
        LocalProtocolError: A field has another dtype or shape.
    """

    env_indices: np.ndarray
    step_ids: np.ndarray
    observation: Observation
    rewards: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    info: Mapping[str, Any]
    _info_rows: InfoRows = field(init=False, repr=False)

    def __init__(
        self,
        env_indices: np.ndarray,
        step_ids: np.ndarray,
        observation: Observation,
        rewards: np.ndarray,
        terminated: np.ndarray,
        truncated: np.ndarray,
        info: Mapping[str, Any],
    ) -> None:
        rows = self._fill(env_indices, step_ids, rewards, terminated, truncated, info)
        if len(observation.text) != rows:
            raise observation.wrong_rows(rows, "feedback.data.obs")
        _set(self, "observation", observation)

    def info_rows(self) -> InfoRows:
        """`info` by row."""
        return self._info_rows

    def to_wire(self) -> dict[str, Any]:
        """The message as it travels."""
        return {
            "message_type": "feedback",
            "data": {
                "obs": self.observation.to_wire(),
                "rewards": self.rewards,
                "terminated": self.terminated,
                "truncated": self.truncated,
                "info": dict(self.info),
            },
            "env_indices": self.env_indices,
            "step_ids": self.step_ids,
        }

    @classmethod
    @blame_peer
    def from_wire(cls, value: Mapping[str, Any]) -> "Feedback":
        """Read the envelope a peer sent.

        Raises:
            RemoteProtocolError: It is no feedback.
        """
        data = read_closed_map(
            read_key(value, "data", "feedback", _CLAUSE), _KEYS, "feedback.data", "5.4 feedback/keys"
        )
        feedback = object.__new__(cls)
        rows = feedback._fill(
            read_key(value, "env_indices", "feedback", _CLAUSE),
            read_key(value, "step_ids", "feedback", _CLAUSE),
            data["rewards"],
            data["terminated"],
            data["truncated"],
            data["info"],
        )
        object.__setattr__(feedback, "observation", Observation.parse(data["obs"], "feedback.data.obs", rows))
        return feedback

    def _fill(
        self,
        env_indices: object,
        step_ids: object,
        rewards: object,
        terminated: object,
        truncated: object,
        info: object,
    ) -> int:
        """Validate and set every field but the observation; returns m."""
        indices = read_env_indices(env_indices, "feedback.env_indices")
        rows = len(indices)
        infos = read_map(info, "feedback.data.info", "5.4 feedback/info")
        _set(self, "env_indices", indices)
        _set(self, "step_ids", read_ints(step_ids, rows, "feedback.step_ids", _CLAUSE))
        _set(self, "rewards", read_floats(rewards, rows, "feedback.data.rewards", "5.4 feedback/rewards"))
        _set(self, "terminated", read_flags(terminated, rows, "feedback.data.terminated", "5.4 feedback/flags"))
        _set(self, "truncated", read_flags(truncated, rows, "feedback.data.truncated", "5.4 feedback/flags"))
        _set(self, "info", infos)
        _set(self, "_info_rows", InfoRows(infos, rows) if infos else _no_info(rows))
        return rows


_set = object.__setattr__


@functools.lru_cache(maxsize=512)
def _no_info(rows: int) -> InfoRows:
    return InfoRows({}, rows)
