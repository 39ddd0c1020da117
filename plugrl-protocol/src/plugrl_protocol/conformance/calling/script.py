"""What the checker says as a client: observations, infers and feedbacks that are right, with something in them."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from plugrl_protocol.conformance.calling.options import ServerOptions
from plugrl_protocol.messages import Feedback, Infer
from plugrl_protocol.observation import Observation

LARGE = 2**21 + 2**18  # 2.25 MiB: more than the 1 MiB that WebSocket libraries allow


class Script:
    """Makes messages for the envs of one run.

    Args:
        options: Names and widths of the observation.
    """

    def __init__(self, options: ServerOptions) -> None:
        self._options = options

    def observation(self, env_indices: Sequence[int], text: np.ndarray | None = None) -> Observation:
        """Rows that differ from env to env."""
        options, rows = self._options, len(env_indices)
        index = np.asarray(env_indices, np.float64).reshape(-1, 1)
        states = np.sin(index + np.arange(options.state_dim))
        images = {}
        if options.image_key is not None:
            shape = (rows, options.image_size, options.image_size, 3)
            images[options.image_key] = np.broadcast_to((index.reshape(-1, 1, 1, 1) % 251).astype(np.uint8), shape)
        texts = np.full(rows, "conformance") if text is None else text
        return Observation(images, {options.state_key: states}, texts)

    def infer(self, env_indices: Sequence[int], **changes: Any) -> Infer:
        """An infer for these envs."""
        fields: dict[str, Any] = {"observation": self.observation(env_indices)}
        return Infer(**(fields | {"env_indices": _ints(env_indices), "step_ids": _zeros(env_indices)} | changes))

    def feedback(self, env_indices: Sequence[int], done: Sequence[bool] | None = None, **changes: Any) -> Feedback:
        """A feedback for these envs; an env that is done terminates."""
        rows = len(env_indices)
        fields: dict[str, Any] = {
            "env_indices": _ints(env_indices),
            "step_ids": _zeros(env_indices),
            "observation": self.observation(env_indices),
            "rewards": np.linspace(0.0, 1.0, rows, dtype=np.float32),
            "terminated": np.array([False] * rows if done is None else done, bool),
            "truncated": np.zeros(rows, bool),
            "info": {},
        }
        return Feedback(**(fields | changes))

    def large_rows(self) -> int:
        """How many rows `large_observation` has."""
        if self._options.image_key is None:
            return 3
        return -(-LARGE // (3 * self._options.image_size**2))

    def large_observation(self, env_indices: Sequence[int]) -> Observation:
        """`large_rows` rows that take 2.25 MiB or more: of images where there are any, of text otherwise."""
        if self._options.image_key is not None:
            return self.observation(env_indices)
        length = LARGE // (4 * len(env_indices))
        return self.observation(env_indices, np.array(["conformance".ljust(length, ".")] * len(env_indices)))


def episode_info(rows: int) -> dict[str, Any]:
    """The info of a feedback that ends episodes (SPEC 5.4)."""
    return {
        "episode": {
            "r": np.linspace(0.0, 1.0, rows),
            "l": np.full(rows, 7),
            "s": np.ones(rows, bool),
            "mask": np.ones(rows, bool),
        }
    }


def _ints(env_indices: Sequence[int]) -> np.ndarray:
    return np.array(env_indices, np.int64)


def _zeros(env_indices: Sequence[int]) -> np.ndarray:
    return np.zeros(len(env_indices), np.int64)
