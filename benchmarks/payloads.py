"""The messages of one PlugRL exchange at four sizes, and the plain msgpack hooks that the floors use.

Every contender moves these messages, laid out as SPEC.md 5 says; nothing of PlugRL is imported, so the floors
owe nothing to the code they are a yardstick for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgpack
import numpy as np

STATE_WIDTH = 17  # HalfCheetah-v5's observation
CAMERAS = ("cam0", "cam1")
CAMERA_SHAPE = (224, 224, 3)
# What `dummy-policy` answers with by default.
ACTION_HORIZON = 4
ACTION_DIM = 7

Message = dict[str, Any]


@dataclass(frozen=True)
class Shape:
    """One size of exchange."""

    name: str
    envs: int
    images: bool = False
    exchanges: int = 2000  # in one timed block

    def observation(self) -> Message:
        """The observation of every env: two cameras, or one state vector of float64."""
        rng = np.random.default_rng(self.envs)
        images, states = {}, {}
        if self.images:
            images = {c: rng.integers(0, 256, (self.envs, *CAMERA_SHAPE), dtype=np.uint8) for c in CAMERAS}
        else:
            states = {"obs": rng.standard_normal((self.envs, STATE_WIDTH))}
        return {"images": images, "states": states, "text": np.full(self.envs, "", dtype="<U1")}


SHAPES = {
    shape.name: shape
    for shape in (
        Shape("n1", 1),
        Shape("n8", 8),
        Shape("n64", 64, exchanges=1500),
        Shape("image", 1, images=True, exchanges=400),
    )
}


def metadata() -> Message:
    """SPEC.md 5.1, sent once."""
    data = {
        "protocol_version": 1,
        "server": "floor",
        "server_version": "1",
        "algorithm": "DummyAlgorithm",
        "policy": "DummyPolicy",
        "action_horizon": ACTION_HORIZON,
        "action_dim": ACTION_DIM,
        "features": [],
    }
    return {"message_type": "metadata", "data": data}


def infer(shape: Shape) -> Message:
    """SPEC.md 5.2."""
    return {"message_type": "infer", "data": shape.observation(), **_indices(shape)}


def action_chunk(envs: int) -> np.ndarray:
    """Time-major actions, float32 [H, envs, da]."""
    return np.zeros((ACTION_HORIZON, envs, ACTION_DIM), dtype=np.float32)


def action(chunk: np.ndarray, env_ids: np.ndarray) -> Message:
    """SPEC.md 5.3."""
    return {"message_type": "action", "data": {"env_ids": env_ids, "action": chunk}}


def feedback(shape: Shape) -> Message:
    """SPEC.md 5.4, for all envs, no flag set."""
    data = {
        "obs": shape.observation(),
        "rewards": np.ones(shape.envs, dtype=np.float32),
        "terminated": np.zeros(shape.envs, dtype=np.bool_),
        "truncated": np.zeros(shape.envs, dtype=np.bool_),
        "info": {},
    }
    return {"message_type": "feedback", "data": data, **_indices(shape)}


def _indices(shape: Shape) -> Message:
    rows = np.arange(shape.envs, dtype=np.int64)
    return {"env_indices": rows, "step_ids": np.zeros_like(rows)}


# --- plain msgpack, as anyone would write it -----------------------------------------------------


def _to_map(value: Any) -> dict[bytes, Any]:
    if isinstance(value, np.ndarray):
        return {b"__ndarray__": True, b"data": value.tobytes(), b"dtype": value.dtype.str, b"shape": value.shape}
    raise TypeError(f"cannot send {type(value).__name__}")


def _from_map(value: dict[Any, Any]) -> Any:
    if b"__ndarray__" in value:
        return np.ndarray(buffer=value[b"data"], dtype=np.dtype(value[b"dtype"]), shape=value[b"shape"])
    return value


_packer = msgpack.Packer(default=_to_map)


def pack(message: Message) -> bytes:
    """One msgpack frame."""
    frame: bytes = _packer.pack(message)
    return frame


def unpack(frame: bytes | bytearray | memoryview) -> Any:
    """The value of a msgpack frame, its arrays made by NumPy without a check."""
    return msgpack.unpackb(frame, object_hook=_from_map)
