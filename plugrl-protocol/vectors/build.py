"""Writes the test vectors: `codec.json`, `messages.json`, `exchanges.json`, and the flat `*.txt` beside each.

A second implementation on purpose: it puts msgpack bytes together by hand and imports nothing of PlugRL, so that a
mistake of our codec cannot be in the vectors too. Run `python plugrl-protocol/vectors/build.py` after a change; a test
proves that what lies here is fresh.
"""

import json
import struct
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent

# msgpack by hand -------------------------------------------------------------------------------------------------


def text(value: str) -> bytes:
    """A str of up to 255 bytes."""
    raw = value.encode()
    return (bytes([0xA0 | len(raw)]) if len(raw) < 32 else b"\xd9" + bytes([len(raw)])) + raw


def binary(raw: bytes) -> bytes:
    """A bin of up to 65,535 bytes."""
    return (b"\xc4" + struct.pack(">B", len(raw)) if len(raw) < 256 else b"\xc5" + struct.pack(">H", len(raw))) + raw


def listing(*items: bytes) -> bytes:
    """An array of up to 15 encoded items."""
    return bytes([0x90 | len(items)]) + b"".join(items)


def mapping(*pairs: tuple[bytes, bytes]) -> bytes:
    """A map of up to 15 encoded pairs."""
    return bytes([0x80 | len(pairs)]) + b"".join(key + value for key, value in pairs)


def fields(**values: bytes) -> bytes:
    """A map with str keys."""
    return mapping(*((text(key), value) for key, value in values.items()))


TRUE, FALSE, NIL = b"\xc3", b"\xc2", b"\xc0"


def array(dtype: str, shape: list[int], data: bytes) -> bytes:
    """An ndarray map (SPEC 3.2)."""
    return raw_array(binary(data), text(dtype), listing(*(bytes([size]) for size in shape)))


def raw_array(data: bytes, dtype: bytes, shape: bytes, marker: bytes = TRUE) -> bytes:
    """An ndarray map of encoded parts, right or wrong."""
    names = (binary(name) for name in (b"__ndarray__", b"data", b"dtype", b"shape"))
    return mapping(*zip(names, (marker, data, dtype, shape), strict=True))


def scalar(data: bytes, dtype: str) -> bytes:
    """An npgeneric map (SPEC 3.2)."""
    return mapping((binary(b"__npgeneric__"), TRUE), (binary(b"data"), data), (binary(b"dtype"), text(dtype)))


def i8(*values: int, shape: list[int] | None = None) -> bytes:
    """An int64 array."""
    return array("<i8", shape or [len(values)], struct.pack(f"<{len(values)}q", *values))


def f8(*values: float, shape: list[int] | None = None) -> bytes:
    """A float64 array."""
    return array("<f8", shape or [len(values)], struct.pack(f"<{len(values)}d", *values))


def f4(*values: float, shape: list[int] | None = None) -> bytes:
    """A float32 array."""
    return array("<f4", shape or [len(values)], struct.pack(f"<{len(values)}f", *values))


def bools(*values: bool, shape: list[int] | None = None) -> bytes:
    """A bool array."""
    return array("|b1", shape or [len(values)], bytes(values))


# Messages --------------------------------------------------------------------------------------------------------


def message(kind: str, **rest: bytes) -> bytes:
    """An envelope (SPEC 2)."""
    return fields(message_type=text(kind), **rest)


def observation(rows: int = 1, **changed: bytes) -> bytes:
    """No images, one state of two numbers, one text a row (SPEC 5.2); `changed` replaces or adds keys."""
    parts = {
        "images": fields(),
        "states": fields(obs=f8(*range(2 * rows), shape=[rows, 2])),
        "text": array("<U2", [rows], "go".encode("utf-32-le") * rows),
    }
    return fields(**{**parts, **changed})


def mixed(texts: int, rows: int) -> bytes:
    """An observation with another number of texts than of states."""
    return observation(texts, states=fields(obs=f8(*range(2 * rows), shape=[rows, 2])))


def infer(*envs: int, data: bytes | None = None, **changed: bytes) -> bytes:
    """An infer of these envs."""
    parts = {"data": data or observation(len(envs)), "env_indices": i8(*envs), "step_ids": i8(*(0 for _ in envs))}
    return message("infer", **{**parts, **changed})


def action(*envs: int, horizon: int = 2, **changed: bytes) -> bytes:
    """An action for these envs, one number a step: 10 for each step, 1 for each row."""
    values = (10.0 * step + row for step in range(horizon) for row in range(len(envs)))
    parts = {"env_ids": i8(*envs), "action": f4(*values, shape=[horizon, len(envs), 1])}
    return message("action", data=fields(**{**parts, **changed}))


def feedback(*envs: int, done: bool = False, info: bytes | None = None, **changed: bytes) -> bytes:
    """A feedback of these envs; `changed` replaces or adds keys of its data."""
    rows = len(envs)
    parts = {
        "obs": observation(rows),
        "rewards": f4(*(2.0 for _ in envs)),
        "terminated": bools(*(done for _ in envs)),
        "truncated": bools(*(False for _ in envs)),
        "info": fields() if info is None else info,
    }
    data = fields(**{**parts, **changed})
    return message("feedback", env_indices=i8(*envs), step_ids=i8(*(0 for _ in envs)), data=data)


METADATA = message("metadata", data=fields(protocol_version=b"\x01"))
OFFERS = message("metadata", data=fields(features=listing(text("reuse-feedback-obs"), text("declare-spaces"))))
BOX = fields(
    kind=text("box"), shape=listing(b"\x01"), dtype=text("<f4"), low=f4(-2.0, shape=[1]), high=f4(2.0, shape=[1])
)


def spaces(**more: bytes) -> bytes:
    """A declaration of one number between -2 and 2 (SPEC 10.2)."""
    return fields(action=BOX, **more)


def episode(rows: int) -> bytes:
    """The info of finished episodes (SPEC 5.4)."""
    return fields(episode=fields(r=f4(*[9.0] * rows), l=i8(*[5] * rows), s=bools(*[True] * rows)))


# The vectors -----------------------------------------------------------------------------------------------------


def vector(name: str, clause: str, verdict: str, frame: bytes, value: Any = None) -> dict[str, Any]:
    """One vector; `value` is what an accepted codec vector holds, arrays as {dtype, shape, values}."""
    entry = {"id": name, "clause": clause, "verdict": verdict, "hex": frame.hex()}
    return entry if value is None else {**entry, "value": value}


def holds(dtype: str, shape: list[int], values: list[Any]) -> dict[str, Any]:
    """What an array holds, in C order."""
    return {"dtype": dtype, "shape": shape, "values": values}


def codec() -> list[dict[str, Any]]:
    """Frames for the codec alone."""
    array_clause, keys, limits, msgpack = "3.2 codec/array", "3.1 codec/keys", "3.3 codec/limits", "3 codec/msgpack"
    deep = b"\x91" * 17 + b"\x01"
    wide = b"\xdd" + struct.pack(">I", 65_537) + b"\x01" * 65_537
    accepted = [
        vector("codec/nil-in-list", msgpack, "must", listing(NIL, TRUE, b"\x07"), [None, True, 7]),
        vector("codec/negative", msgpack, "must", listing(b"\xff", b"\xd0\x80", b"\xd1\xff\x00"), [-1, -128, -256]),
        vector("codec/wide-int", msgpack, "must", listing(b"\xcf" + b"\xff" * 8), [2**64 - 1]),
        vector("codec/longer-int-than-needed", msgpack, "must", listing(b"\xcd\x00\x05"), [5]),
        vector("codec/float", msgpack, "must", listing(b"\xcb" + struct.pack(">d", 0.1)), [0.1]),
        vector("codec/text", msgpack, "must", listing(text("grüß 🤖")), ["grüß 🤖"]),
        vector("codec/array-f4", array_clause, "must", f4(1.5, -2.0), holds("<f4", [2], [1.5, -2.0])),
        vector("codec/array-f8", array_clause, "must", f8(0.1, shape=[1, 1]), holds("<f8", [1, 1], [0.1])),
        vector("codec/array-u1", array_clause, "must", array("|u1", [3], b"\0\x7f\xff"), holds("|u1", [3], [0, 127, 255])),
        vector("codec/array-b1", array_clause, "must", bools(True, False), holds("|b1", [2], [True, False])),
        vector("codec/array-f2", array_clause, "must", array("<f2", [1], b"\0\x3c"), holds("<f2", [1], [1.0])),
        vector("codec/array-big-endian", array_clause, "must", array(">i2", [2], b"\0\x01\xff\xff"), holds(">i2", [2], [1, -1])),
        vector("codec/array-u8", array_clause, "must", array("<u8", [1], b"\xff" * 8), holds("<u8", [1], [2**64 - 1])),
        vector("codec/array-text", array_clause, "must", array("<U2", [2], "go".encode("utf-32-le") + "x\0".encode("utf-32-le")), holds("<U2", [2], ["go", "x"])),
        vector("codec/array-empty", array_clause, "must", array("<f8", [0, 3], b""), holds("<f8", [0, 3], [])),
        vector("codec/array-0d", array_clause, "must", array("<i4", [], b"\x05\0\0\0"), holds("<i4", [], [5])),
        vector("codec/scalar-f4", array_clause, "must", scalar(b"\xcb" + struct.pack(">d", 0.5), "<f4"), holds("<f4", [], [0.5])),
        vector("codec/scalar-i8", array_clause, "must", scalar(b"\x05", "<i8"), holds("<i8", [], [5])),
        vector("codec/scalar-bool", array_clause, "must", scalar(TRUE, "|b1"), holds("|b1", [], [True])),
        vector("codec/openpi-observation", "3 codec/encode", "must", fields(**{"observation/state": f4(0.25), "prompt": text("fold")}), {"observation/state": holds("<f4", [1], [0.25]), "prompt": "fold"}),
        vector("codec/openpi-image", "3 codec/encode", "must", fields(**{"observation/image": array("|u1", [1, 2, 3], bytes(range(6)))}), {"observation/image": holds("|u1", [1, 2, 3], [0, 1, 2, 3, 4, 5])}),
        vector("codec/openpi-actions", "3 codec/encode", "must", fields(actions=f4(0.5, -0.5, shape=[2, 1])), {"actions": holds("<f4", [2, 1], [0.5, -0.5])}),
        vector("codec/depth-16", limits, "must", b"\x91" * 16 + b"\x01"),
    ]  # fmt: skip
    one = binary(struct.pack("<d", 1.0))
    refused = [
        vector("codec/empty-frame", msgpack, "reject", b""),
        vector("codec/cut-short", msgpack, "reject", f8(1.0)[:-1]),
        vector("codec/trailing-byte", msgpack, "reject", fields() + b"\x01"),
        vector("codec/reserved-byte", msgpack, "reject", b"\xc1"),
        vector("codec/ext", msgpack, "reject", b"\xd4\x01\x00"),
        vector("codec/timestamp", msgpack, "reject", b"\xd6\xff\x00\x00\x00\x00"),
        vector("codec/not-utf8", msgpack, "reject", listing(b"\xa2\xff\xfe")),
        vector("codec/lying-length", limits, "reject", b"\xdd\x7f\xff\xff\xff"),
        vector("codec/int-key", keys, "reject", mapping((b"\x01", b"\x02"))),
        vector("codec/nil-key", keys, "reject", mapping((NIL, b"\x02"))),
        vector("codec/depth-17", limits, "reject", deep),
        vector("codec/elements", limits, "reject", wide),
        vector("codec/marker-false", array_clause, "reject", raw_array(one, text("<f8"), listing(b"\x01"), FALSE)),
        vector("codec/marker-int", array_clause, "reject", raw_array(one, text("<f8"), listing(b"\x01"), b"\x01")),
        vector("codec/data-nil", array_clause, "reject", raw_array(NIL, text("<f8"), listing(b"\x01"))),
        vector("codec/data-str", array_clause, "reject", raw_array(text("12345678"), text("<f8"), listing(b"\x01"))),
        vector("codec/data-short", array_clause, "reject", raw_array(binary(b"1234567"), text("<f8"), listing(b"\x01"))),
        vector("codec/data-long", array_clause, "reject", raw_array(binary(b"123456789"), text("<f8"), listing(b"\x01"))),
        vector("codec/shape-negative", array_clause, "reject", raw_array(one, text("<f8"), listing(b"\xff"))),
        vector("codec/shape-bool", array_clause, "reject", raw_array(one, text("<f8"), listing(TRUE))),
        vector("codec/shape-float", array_clause, "reject", raw_array(one, text("<f8"), listing(b"\xcb" + struct.pack(">d", 1.0)))),
        vector("codec/shape-int", array_clause, "reject", raw_array(one, text("<f8"), b"\x01")),
        vector("codec/shape-overflow", array_clause, "reject", raw_array(one, text("<f8"), listing(b"\xcf" + struct.pack(">Q", 2**61), b"\x08"))),
        vector("codec/dtype-object", array_clause, "reject", raw_array(one, text("|O"), listing(b"\x01"))),
        vector("codec/dtype-void", array_clause, "reject", raw_array(one, text("|V8"), listing(b"\x01"))),
        vector("codec/dtype-bytes", array_clause, "reject", raw_array(one, text("|S8"), listing(b"\x01"))),
        vector("codec/dtype-complex", array_clause, "reject", raw_array(one, text("<c8"), listing(b"\x01"))),
        vector("codec/dtype-datetime", array_clause, "reject", raw_array(one, text("<M8[s]"), listing(b"\x01"))),
        vector("codec/dtype-struct", array_clause, "reject", raw_array(one, text("f4,f4"), listing(b"\x01"))),
        vector("codec/dtype-name", array_clause, "reject", raw_array(one, text("float64"), listing(b"\x01"))),
        vector("codec/dtype-bin", array_clause, "reject", raw_array(one, binary(b"<f8"), listing(b"\x01"))),
        vector("codec/b1-of-2", array_clause, "reject", array("|b1", [1], b"\x02")),
        vector("codec/text-not-utf32", array_clause, "reject", array("<U1", [1], b"\xff\xff\xff\xff")),
        vector("codec/extra-key", array_clause, "reject", mapping((binary(b"__ndarray__"), TRUE), (binary(b"data"), one), (binary(b"dtype"), text("<f8")), (binary(b"shape"), listing(b"\x01")), (binary(b"more"), NIL))),
        vector("codec/no-shape", array_clause, "reject", mapping((binary(b"__ndarray__"), TRUE), (binary(b"data"), one), (binary(b"dtype"), text("<f8")))),
        vector("codec/scalar-object", array_clause, "reject", scalar(b"\x05", "|O")),
        vector("codec/scalar-overflow", array_clause, "reject", scalar(b"\xcd\x01\x00", "|u1")),
        vector("codec/scalar-text", array_clause, "reject", scalar(text("5"), "<i8")),
    ]  # fmt: skip
    return accepted + refused


def messages() -> list[dict[str, Any]]:
    """Frames that are one message each, or fail to be."""
    envelope, shape = "2 envelope/message-type", "5.2 infer/shape"
    index = {name: f"4.4 indices/{name}" for name in ("dtype", "empty", "range", "unique")}
    obs_keys, obs_shape, text_clause = "5.2 observation/keys", "5.2 observation/shape", "3.4 observation/text"
    info, flags, rewards = "5.4 feedback/info", "5.4 feedback/flags", "5.4 feedback/rewards"
    no_indices = message("infer", data=observation(1), step_ids=i8(0))
    image = array("|u1", [1, 2, 2, 3], bytes(12))
    two = {"env_indices": i8(0, 1), "step_ids": i8(0, 0)}
    return [
        vector("metadata/plain", "5.1 metadata/data", "must", METADATA),
        vector("metadata/empty", "5.1 metadata/any-key", "must", message("metadata", data=fields())),
        vector("metadata/unknown-key", "3.1 codec/unknown-keys", "must", message("metadata", data=fields(color=text("red")), more=NIL)),
        vector("metadata/data-list", "5.1 metadata/data", "reject", message("metadata", data=listing())),
        vector("metadata/features-text", "5.1 metadata/data", "reject", message("metadata", data=fields(features=text("reuse")))),
        vector("infer/one-env", shape, "must", infer(0)),
        vector("infer/three-envs", shape, "must", infer(2, 0, 65_535)),
        vector("infer/image", obs_shape, "must", infer(0, data=observation(images=fields(cam=image)))),
        vector("infer/no-states", obs_keys, "must", infer(0, data=observation(states=fields()))),
        vector("infer/text-list", text_clause, "should", infer(0, data=observation(text=listing(text("pick"))))),
        vector("infer/unknown-key", "3.1 codec/unknown-keys", "must", infer(0, more=NIL)),
        vector("infer/spaces", "10.2 spaces/action", "must", infer(0, spaces=spaces())),
        vector("infer/reuse", "10.1 reuse/shape", "must", infer(0, 1, data=observation(1), reuse=bools(True, False))),
        vector("infer/reuse-rows", obs_shape, "reject", infer(0, 1, data=mixed(1, 2), reuse=bools(True, False))),
        vector("infer/reuse-ints", "10.1 reuse/shape", "reject", infer(0, reuse=i8(0))),
        vector("infer/spaces-kind", "10.2 spaces/action", "reject", infer(0, spaces=fields(action=fields(kind=text("ball"))))),
        vector("infer/spaces-all", "10.2 spaces/action", "must", infer(0, spaces=spaces(env=text("Pendulum-v1"), num_envs=b"\x08", max_episode_steps=b"\x64", client=b"\x00"))),
        vector("infer/spaces-env", "10.2 spaces/env", "reject", infer(0, spaces=spaces(env=b"\x01"))),
        vector("infer/spaces-num-envs", "10.2 spaces/num_envs", "reject", infer(0, spaces=spaces(num_envs=b"\x00"))),
        vector("infer/spaces-steps", "10.2 spaces/max_episode_steps", "reject", infer(0, spaces=spaces(max_episode_steps=text("9")))),
        vector("infer/spaces-client", "10.2 spaces/client", "reject", infer(0, spaces=spaces(client=TRUE))),
        vector("infer/no-indices", shape, "reject", no_indices),
        vector("infer/index-negative", index["range"], "reject", infer(-1)),
        vector("infer/index-65536", index["range"], "reject", infer(65_536)),
        vector("infer/index-twice", index["unique"], "reject", infer(3, 3)),
        vector("infer/index-float", index["dtype"], "reject", infer(0, env_indices=f8(0.0))),
        vector("infer/index-scalar", index["dtype"], "reject", infer(0, env_indices=b"\x00")),
        vector("infer/index-none", index["empty"], "reject", infer(data=observation(0))),
        vector("infer/too-few-rows", obs_shape, "reject", infer(0, 1, data=mixed(2, 1))),
        vector("infer/too-many-rows", obs_shape, "reject", infer(0, data=mixed(1, 2))),
        vector("infer/step-ids-short", shape, "reject", infer(0, data=observation(1), step_ids=i8(0, 0))),
        vector("infer/state-flat", obs_shape, "reject", infer(0, data=observation(states=fields(obs=f8(1.0))))),
        vector("infer/state-list", obs_shape, "reject", infer(0, data=observation(states=fields(obs=listing(b"\x01"))))),
        vector("infer/image-float", obs_shape, "reject", infer(0, data=observation(images=fields(cam=f4(*[0.0] * 12, shape=[1, 2, 2, 3]))))),
        vector("infer/image-flat", obs_shape, "reject", infer(0, data=observation(images=fields(cam=array("|u1", [1, 12], bytes(12)))))),
        vector("infer/observation-extra", obs_keys, "reject", infer(0, data=observation(depth=fields()))),
        vector("infer/observation-no-text", obs_keys, "reject", infer(0, data=fields(images=fields(), states=fields()))),
        vector("infer/text-number", text_clause, "reject", infer(0, data=observation(text=f8(1.0)))),
        vector("infer/text-short", text_clause, "reject", infer(0, 1, data=observation(2, text=listing(text("a"))))),
        vector("action/two-steps", "5.3 action/shape", "must", action(0)),
        vector("action/three-envs", "5.3 action/shape", "must", action(2, 0, 1)),
        vector("action/ints", "5.3 action/shape", "must", message("action", data=fields(env_ids=i8(0), action=i8(1, shape=[1, 1])))),
        vector("action/no-env-ids", "5.3 action/own-order", "must", message("action", data=fields(action=f4(1.0, shape=[1, 1, 1])))),
        vector("action/no-steps", "5.3 action/shape", "reject", action(0, horizon=0)),
        vector("action/one-axis", "5.3 action/shape", "reject", message("action", data=fields(env_ids=i8(0), action=f4(1.0)))),
        vector("action/text", "5.3 action/shape", "reject", message("action", data=fields(env_ids=i8(0), action=array("<U1", [1, 1], "a".encode("utf-32-le"))))),
        vector("action/missing", "5.3 action/shape", "reject", message("action", data=fields(env_ids=i8(0)))),
        vector("feedback/one-env", "5.4 feedback/shape", "must", feedback(0)),
        vector("feedback/episode", "5.4 feedback/episode", "must", feedback(0, 4, done=True, info=episode(2))),
        vector("feedback/rewards-f8", rewards, "should", feedback(0, rewards=f8(2.0))),
        vector("feedback/info-scalar-one-row", info, "must", feedback(0, info=fields(task=text("pick")))),
        vector("feedback/rewards-2d", rewards, "reject", feedback(0, rewards=f4(2.0, shape=[1, 1]))),
        vector("feedback/rewards-short", rewards, "reject", feedback(0, 1, rewards=f4(2.0))),
        vector("feedback/rewards-text", rewards, "reject", feedback(0, rewards=array("<U1", [1], "2".encode("utf-32-le")))),
        vector("feedback/rewards-list", rewards, "reject", feedback(0, rewards=listing(b"\x02"))),
        vector("feedback/flags-ints", flags, "reject", feedback(0, terminated=i8(0))),
        vector("feedback/flags-long", flags, "reject", feedback(0, truncated=bools(False, False))),
        vector("feedback/extra", "5.4 feedback/keys", "reject", feedback(0, done=False, success=bools(False))),
        vector("feedback/info-list", info, "reject", feedback(0, info=listing())),
        vector("feedback/info-unsplittable", info, "reject", feedback(0, 1, info=fields(task=text("pick")))),
        vector("feedback/info-list-for-array", info, "reject", feedback(0, 1, info=fields(speed=listing(b"\x01", b"\x02")))),
        vector("feedback/episode-text", "5.4 feedback/episode", "reject", feedback(0, done=True, info=fields(episode=fields(r=array("<U1", [1], "9".encode("utf-32-le")), l=i8(5), s=bools(True))))),
        vector("feedback/index-twice", index["unique"], "reject", message("feedback", **{**two, "env_indices": i8(1, 1)}, data=fields(obs=observation(2), rewards=f4(1.0, 1.0), terminated=bools(False, False), truncated=bools(False, False), info=fields()))),
        vector("infer/unknown-type", envelope, "reject", message("hello")),
        vector("infer/no-type", envelope, "reject", fields(data=fields())),
        vector("infer/type-number", envelope, "reject", fields(message_type=b"\x01")),
        vector("infer/list", envelope, "reject", listing()),
        vector("infer/nil", envelope, "reject", NIL),
    ]  # fmt: skip


def exchange(name: str, clause: str, verdict: str, *steps: tuple[str, bytes]) -> dict[str, Any]:
    """A conversation in which everything but the last step is right; the verdict is on that one."""
    return {
        "id": f"exchange/{name}",
        "clause": clause,
        "verdict": verdict,
        "steps": [{"from": sender, "hex": frame.hex()} for sender, frame in steps],
    }


def exchanges() -> list[dict[str, Any]]:
    """Conversations."""
    begun = [("server", METADATA), ("client", infer(0)), ("server", action(0))]
    pair = [("server", METADATA), ("client", infer(0, 1)), ("server", action(0, 1))]
    turn, reuse = "4.2 exchange/alternation", [("server", OFFERS), ("client", infer(0)), ("server", action(0))]
    again = infer(0, data=observation(0), reuse=bools(True))
    return [
        exchange("one-turn", turn, "must", *begun, ("client", feedback(0))),
        exchange("two-turns", turn, "must", *begun, ("client", feedback(0)), ("client", infer(0)), ("server", action(0))),
        exchange("other-set", "4.3 feedback/any-set", "must", *pair, ("client", feedback(1))),
        exchange("reordered-set", "4.3 feedback/any-set", "must", *pair, ("client", feedback(1, 0))),
        exchange("reuse", "10.1 reuse/held", "must", *reuse, ("client", feedback(0)), ("client", again)),
        exchange("declared", "10.2 spaces/action", "must", ("server", OFFERS), ("client", infer(0, spaces=spaces()))),
        exchange("infer-first", "4.1 exchange/metadata-first", "reject", ("client", infer(0))),
        exchange("action-first", "4.1 exchange/metadata-first", "reject", ("server", action(0))),
        exchange("metadata-twice", turn, "reject", ("server", METADATA), ("server", METADATA)),
        exchange("two-infers", turn, "reject", *begun, ("client", infer(0))),
        exchange("infer-before-action", turn, "reject", ("server", METADATA), ("client", infer(0)), ("client", infer(0))),
        exchange("two-feedbacks", turn, "reject", *begun, ("client", feedback(0)), ("client", feedback(0))),
        exchange("two-actions", turn, "reject", *begun, ("server", action(0))),
        exchange("feedback-before-action", turn, "reject", ("server", METADATA), ("client", infer(0)), ("client", feedback(0))),
        exchange("other-env-ids", "4.3 action/env-ids", "reject", ("server", METADATA), ("client", infer(0, 1)), ("server", action(1, 0))),
        exchange("fewer-rows", "5.3 action/shape", "reject", ("server", METADATA), ("client", infer(0, 1)), ("server", action(0))),
        exchange("reuse-unoffered", "10.1 reuse/unoffered", "reject", *begun, ("client", feedback(0)), ("client", again)),
        exchange("reuse-after-done", "10.1 reuse/held", "reject", *reuse, ("client", feedback(0, done=True)), ("client", again)),
        exchange("reuse-without-feedback", "10.1 reuse/held", "reject", ("server", OFFERS), ("client", again)),
    ]  # fmt: skip


# Files -----------------------------------------------------------------------------------------------------------


def flat(entry: dict[str, Any]) -> str:
    """`id verdict hex`; of an exchange, its frames as `client:hex` and `server:hex`, joined by commas."""
    frames = entry.get("hex")
    if frames is None:
        frames = ",".join(f"{step['from']}:{step['hex']}" for step in entry["steps"])
    return f"{entry['id']} {entry['verdict']} {frames}"


def files() -> dict[str, str]:
    """File name -> content."""
    made = {}
    for name, entries in (("codec", codec()), ("messages", messages()), ("exchanges", exchanges())):
        made[f"{name}.json"] = json.dumps(entries, indent=1, ensure_ascii=False) + "\n"
        made[f"{name}.txt"] = "".join(flat(entry) + "\n" for entry in entries if entry.get("hex") != "")
    return made


if __name__ == "__main__":
    for file_name, content in files().items():
        (FOLDER / file_name).write_text(content, encoding="utf-8")
