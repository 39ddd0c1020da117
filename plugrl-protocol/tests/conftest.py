"""Factories of valid messages for the tests of the protocol."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from plugrl_protocol.messages import Action, Feedback, Infer
from plugrl_protocol.observation import Observation


def make_observation(rows: int = 3, width: int = 2) -> Observation:
    return Observation(
        {"cam": np.arange(rows * 12, dtype=np.uint8).reshape(rows, 2, 2, 3)},
        {"qpos": np.arange(rows * width, dtype=np.float64).reshape(rows, width)},
        [f"task {row}" for row in range(rows)],
    )


def make_infer(indices: list[int], **changes: Any) -> Infer:
    rows = len(indices)
    fields: dict[str, Any] = {
        "observation": make_observation(rows),
        "env_indices": np.array(indices, np.int64),
        "step_ids": np.zeros(rows, np.int64),
    }
    return Infer(**(fields | changes))


def make_action(indices: list[int], **changes: Any) -> Action:
    action = np.arange(2 * len(indices) * 3, dtype=np.float32).reshape(2, len(indices), 3)
    return Action(**({"action": action, "env_ids": np.array(indices, np.int64)} | changes))


def make_feedback(indices: list[int], **changes: Any) -> Feedback:
    rows = len(indices)
    fields: dict[str, Any] = {
        "env_indices": np.array(indices, np.int64),
        "step_ids": np.zeros(rows, np.int64),
        "observation": make_observation(rows),
        "rewards": np.arange(rows, dtype=np.float32),
        "terminated": np.arange(rows) % 2 == 0,
        "truncated": np.zeros(rows, bool),
        "info": {},
    }
    return Feedback(**(fields | changes))


@pytest.fixture
def observation() -> Callable[..., Observation]:
    return make_observation


@pytest.fixture
def infer() -> Callable[..., Infer]:
    return make_infer


@pytest.fixture
def action() -> Callable[..., Action]:
    return make_action


@pytest.fixture
def feedback() -> Callable[..., Feedback]:
    return make_feedback
