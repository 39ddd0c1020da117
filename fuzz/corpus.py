"""What fuzzing starts from: `corpus/` (valid frames of each type, scripts of whole exchanges) and the test vectors.

python fuzz/corpus.py          # writes the files that this module makes; others (findings of old) stay
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from conversation_target import Options, write_script
from plugrl_protocol.codec import encode
from plugrl_protocol.connection import DECLARE, REUSE
from plugrl_protocol.messages import Action, Feedback, Infer, Message, Metadata
from plugrl_protocol.observation import Observation
from plugrl_protocol.spaces import BoxSpace, Declaration, DiscreteSpace, MultiBinarySpace, MultiDiscreteSpace

FOLDER = Path(__file__).parent / "corpus"
VECTORS = Path(__file__).parents[1] / "plugrl-protocol/vectors"


def load(target: str) -> dict[str, bytes]:
    """Every input of a target, by name: the files of the corpus, and the vectors."""
    files = {path.stem: path.read_bytes() for path in sorted((FOLDER / target).glob("*.bin"))}
    return files | dict(_vector_frames() if target == "frame" else _vector_scripts())


def build() -> dict[Path, bytes]:
    """The files that this module makes."""
    frames = {Path("frame") / f"{name}.bin": frame for name, frame in _frames()}
    scripts = {Path("conversation") / f"{name}.bin": script for name, script in _scripts()}
    return frames | scripts


def _vector_frames() -> Iterator[tuple[str, bytes]]:
    for name in ("codec", "messages"):
        for entry in json.loads((VECTORS / f"{name}.json").read_text(encoding="utf-8")):
            yield entry["id"], bytes.fromhex(entry["hex"])


def _vector_scripts() -> Iterator[tuple[str, bytes]]:
    """Each conversation of the vectors, as the end hears it that its last frame is for."""
    for entry in json.loads((VECTORS / "exchanges.json").read_text(encoding="utf-8")):
        peer = entry["steps"][-1]["from"]
        frames, spoke = [], False
        for step in entry["steps"]:
            if step["from"] == peer:
                frames.append((spoke, bytes.fromhex(step["hex"])))
            spoke = step["from"] != peer
        ours = Options.CLIENT if peer == "server" else Options.REUSE | Options.DECLARE
        yield entry["id"], write_script(ours, frames)


def _observation(rows: int, *, images: bool = False, text: str = "") -> Observation:
    cameras = {"cam": np.arange(rows * 12, dtype=np.uint8).reshape(rows, 2, 2, 3)} if images else {}
    return Observation(cameras, {"obs": np.arange(2.0 * rows).reshape(rows, 2)}, [text] * rows)


def _infer(envs: list[int], **changes: Any) -> Infer:
    fields = {
        "observation": _observation(len(envs)),
        "env_indices": np.array(envs),
        "step_ids": np.zeros(len(envs), int),
    }
    return Infer(**(fields | changes))


def _feedback(envs: list[int], **changes: Any) -> Feedback:
    rows = len(envs)
    fields = {
        "env_indices": np.array(envs),
        "step_ids": np.zeros(rows, int),
        "observation": _observation(rows),
        "rewards": np.ones(rows, np.float32),
        "terminated": np.zeros(rows, bool),
        "truncated": np.zeros(rows, bool),
        "info": {},
    }
    return Feedback(**(fields | changes))


def _messages() -> Iterator[tuple[str, Message]]:
    ones = np.ones(2)
    box = BoxSpace((2,), np.dtype("f4"), -ones, ones)
    yield "metadata", Metadata({"protocol_version": 1, "features": [REUSE, DECLARE], "action_horizon": 4})
    yield "metadata-scalars", Metadata({"a": np.float32(2), "b": [1, None, {"c": b"bin"}], "d": np.ones((1, 0), ">i2")})
    yield "infer", _infer([0])
    yield "infer-images", _infer([4, 0], observation=_observation(2, images=True, text="pick 😀"))
    yield "infer-reuse", _infer([0, 1, 7], observation=_observation(1), reuse=np.array([True, False, True]))
    spaces = {"box": box, "discrete": DiscreteSpace(3), "binary": MultiBinarySpace(4)}
    spaces["multi-discrete"] = MultiDiscreteSpace(np.array([2, 3]))
    for name, space in spaces.items():
        yield f"infer-{name}", _infer([0], spaces=Declaration(space, "env-v1", 8, 200, 0))
    yield "action", Action(np.zeros((2, 2, 3), np.float32), np.array([4, 0]))
    yield "action-no-ids", Action(np.zeros((1, 1), np.int64), None)
    yield "feedback", _feedback([0])
    done = np.array([True, False])
    episode = {"r": ones, "l": np.ones(2, int), "s": np.ones(2, bool), "mask": np.ones(2, bool)}
    yield (
        "feedback-episode",
        _feedback([0, 9], terminated=done, info={"episode": episode, "note": "x", "deep": {"v": ones}}),
    )
    yield "feedback-images", _feedback([0, 9], truncated=done, observation=_observation(2, images=True))


def _frames() -> Iterator[tuple[str, bytes]]:
    for name, message in _messages():
        yield name, encode(message.to_wire())


def _scripts() -> Iterator[tuple[str, bytes]]:
    def script(options: Options, *messages: Message) -> bytes:
        return write_script(options, [(True, encode(message.to_wire())) for message in messages])

    offered = Options.REUSE | Options.DECLARE
    declaration = Declaration(DiscreteSpace(3), "env-v1", 3)
    reuse = _infer([0, 1], observation=_observation(1), reuse=np.array([True, False]))
    again = _infer([1, 0], observation=_observation(0), reuse=np.array([True, True]))
    done = _feedback([1], truncated=np.array([True]))
    action = Action(np.zeros((2, 3, 1), np.float32), np.array([0, 1, 7]))
    metadata = Metadata({"features": [REUSE]})
    yield "server", script(Options(0), _infer([0]), _feedback([0]), _infer([0, 1]), _feedback([1]), _infer([1]))
    yield (
        "server-reuse",
        script(offered, _infer([0, 1]), _feedback([0, 1]), again, _feedback([0]), reuse, done, _infer([1])),
    )
    yield "server-declared", script(offered, _infer([0, 1, 2], spaces=declaration), _feedback([2]), _infer([2]))
    yield "server-unheld", script(offered, _infer([0]), _feedback([0, 5]), _infer([5]))
    yield "client", script(Options.CLIENT, metadata, action, action, action)
    yield "client-small", script(Options.CLIENT | Options.SMALL, metadata, action)


def main() -> None:
    """Write the files."""
    for name, data in build().items():
        path = FOLDER / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


if __name__ == "__main__":
    main()
