"""The generated parts of SPEC.md: the diagrams of section 4 and the frames of section 11.

`python plugrl-protocol/spec_parts.py` rewrites them in place; `tests/test_spec.py` proves that they are fresh.
"""

import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from plugrl_protocol.codec import encode
from plugrl_protocol.exchange import RULES, Role
from plugrl_protocol.messages import Action, Feedback, Infer, Message, Metadata
from plugrl_protocol.observation import Observation

SPEC = Path(__file__).parent / "SPEC.md"
_FIXED = {0xC0: "nil", 0xC2: "false", 0xC3: "true"}
_SIZED = {  # code -> (bytes of the length, what it is the length of)
    0xC4: (1, "bin"), 0xC5: (2, "bin"), 0xD9: (1, "str"), 0xDC: (2, "array"), 0xDE: (2, "map"),
}  # fmt: skip


def diagrams() -> str:
    """The exchange as a table, a sequence and a state diagram, from the table that the code runs by."""
    rows = [f"| {turn.value} | {rule.sender.value} | {rule.then.value} |" for turn, rule in RULES.items()]
    arrows = {Role.SERVER: "Server->>Client", Role.CLIENT: "Client->>Server"}
    calls = [f"    {arrows[rule.sender]}: {turn.value}" for turn, rule in RULES.items()]
    states = [f"    {turn.value}_due --> {rule.then.value}_due: {turn.value}" for turn, rule in RULES.items()]
    first = next(iter(RULES)).value
    return "\n".join(
        [
            "| what is due | who sends it | what is due next |",
            "|---|---|---|",
            *rows,
            "",
            "```mermaid",
            "sequenceDiagram",
            "    Client->>Server: WebSocket handshake",
            calls[0],
            "    loop until somebody closes",
            *(f"    {call}" for call in calls[1:]),
            "    end",
            "```",
            "",
            "```mermaid",
            "stateDiagram-v2",
            f"    [*] --> {first}_due",
            *states,
            "```",
        ]
    )


def examples() -> dict[str, Message]:
    """One small message of each type."""
    observation = Observation({}, {"obs": np.array([[0.5]])}, ["go"])
    env, step = np.array([3]), np.array([0])
    return {
        "metadata": Metadata({"protocol_version": 1, "features": ["declare-spaces"]}),
        "infer": Infer(observation, env, step),
        "action": Action(np.array([[[1.0]], [[-1.0]]], np.float32), env),
        "feedback": Feedback(
            env, step, observation, np.array([2.0], np.float32), np.array([True]), np.array([False]), {}
        ),
    }


def frames() -> str:
    """The examples as annotated hex."""
    parts = []
    for name, message in examples().items():
        frame = encode(message.to_wire())
        lines = "\n".join(f"{raw.hex(' '):<50} {comment}".rstrip() for raw, comment in dump(frame))
        parts.append(f"`{name}`, {len(frame)} bytes:\n\n```text\n{lines}\n```")
    return "\n\n".join(parts)


def dump(frame: bytes) -> Iterator[tuple[bytes, str]]:
    """Cut a frame into its msgpack tokens, each with what it says; long ones into lines of 16 bytes."""
    at = 0
    while at < len(frame):
        size, what = _token(frame, at)
        for start in range(at, at + size, 16):
            yield frame[start : min(start + 16, at + size)], what if start == at else ""
        at += size


def _token(frame: bytes, at: int) -> tuple[int, str]:
    code = frame[at]
    if code < 0x80:
        return 1, str(code)
    if code >= 0xE0:
        return 1, str(code - 0x100)
    if code < 0xC0:
        return _short(frame, at, code)
    if code in _FIXED:
        return 1, _FIXED[code]
    if code == 0xCB:
        return 9, str(struct.unpack_from(">d", frame, at + 1)[0])
    width, kind = _SIZED[code]
    length = int.from_bytes(frame[at + 1 : at + 1 + width], "big")
    return _sized(frame, at, 1 + width, kind, length)


def _short(frame: bytes, at: int, code: int) -> tuple[int, str]:
    if code < 0xA0:
        return _sized(frame, at, 1, "map" if code < 0x90 else "array", code & 0x0F)
    return _sized(frame, at, 1, "str", code & 0x1F)


def _sized(frame: bytes, at: int, header: int, kind: str, length: int) -> tuple[int, str]:
    if kind in ("map", "array"):
        return header, f"{kind} of {length}"
    content: Any = frame[at + header : at + header + length]
    text = f'"{content.decode()}"' if re.fullmatch(rb"[ -~]+", content) else f"{length} bytes"
    return header + length, f"{kind} {text}"


def fill(spec: str) -> str:
    """SPEC.md's text with both parts made anew."""
    for name, text in (("diagrams", diagrams()), ("frames", frames())):
        begin, end = f"<!-- begin: {name} (spec_parts.py) -->", f"<!-- end: {name} -->"
        before, _, rest = spec.partition(begin)
        _, _, after = rest.partition(end)
        spec = f"{before}{begin}\n\n{text}\n\n{end}{after}"
    return spec


if __name__ == "__main__":
    SPEC.write_text(fill(SPEC.read_text(encoding="utf-8")), encoding="utf-8")
