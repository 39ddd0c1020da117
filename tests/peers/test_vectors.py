"""`--vectors DIR` of every peer: the flat form, and frames without number on which all codecs must agree."""

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from plugrl_protocol.codec import decode, encode
from plugrl_protocol.errors import ProtocolError
from plugrl_protocol.messages import message_from_wire

from tests.peers.processes import Client, Ended, ended, load, raw, start

Grade = Callable[[Path], Ended]
reference_server = load("reference_server")

SAMPLE = f"""
# a comment, and an empty line

codec/nil accept c0
codec/array must {encode(np.arange(3, dtype="<i2").reshape(3, 1)).hex()}
codec/scalar must {encode(np.float32(1.5)).hex()}
codec/longer-than-needed should cc01
codec/ext reject d40100
codec/object-array reject {encode(np.zeros(1)).replace(b"<f8", b"|O8").hex()}
metadata/empty must {encode({"message_type": "metadata", "data": {}}).hex()}
metadata/no-data reject {encode({"message_type": "metadata"}).hex()}
action/small must {encode({"message_type": "action", "data": {"action": np.zeros((1, 1))}}).hex()}
action/no-steps reject {encode({"message_type": "action", "data": {"action": np.zeros((0, 1))}}).hex()}
infer/empty reject {encode({"message_type": "infer", "data": {}}).hex()}
feedback/empty reject {encode({"message_type": "feedback", "data": {}}).hex()}
exchange/two-infers reject c0
"""


@pytest.fixture(params=["raw_client", "plugrl_client", "reference_server"])
def grade(request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]) -> Grade:
    """Run one peer over a folder of vectors; the C++ client under its sanitizers."""

    def run(folder: Path) -> Ended:
        if request.param == "plugrl_client":
            return ended(start([str(request.getfixturevalue("harness")), "--vectors", str(folder)]))
        module = raw if request.param == "raw_client" else reference_server
        status = module.main(["--vectors", str(folder)])
        return Ended(status, capsys.readouterr().err)

    return run


def write(folder: Path, text: str, name: str = "sample.txt") -> Path:
    (folder / "deeper").mkdir()
    (folder / "deeper" / name).write_text(text)
    return folder


def test_passes_the_vectors_of_the_specification(grade: Grade) -> None:
    end = grade(Path(__file__).parents[2] / "plugrl-protocol" / "vectors")
    assert end.status == 0, end.output
    assert " 0 failed" in end.output


def test_passes_the_sample(grade: Grade, tmp_path: Path) -> None:
    end = grade(write(tmp_path, SAMPLE))
    assert end.status == 0, end.output
    assert "0 failed" in end.output


def test_grades_its_own_layers_only(client: Client, tmp_path: Path) -> None:
    assert "10 passed, 0 failed, 0 noted, 3 skipped" in client.alone("--vectors", str(write(tmp_path, SAMPLE))).output


def test_reference_server_grades_the_other_messages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert reference_server.main(["--vectors", str(write(tmp_path, SAMPLE))]) == 0
    assert "8 passed, 0 failed, 0 noted, 5 skipped" in capsys.readouterr().err


@pytest.mark.parametrize(
    "line",
    [
        "codec/a reject c0",
        "codec/b must d40100",
        "unheard-of/c must c1",
        "codec/d must c0c0",
        "codec/e perhaps c0",
        "codec/f must xyz",
        "codec/g must c",
        "codec/h must",
        "codec/i",
    ],
)
def test_names_what_fails(grade: Grade, tmp_path: Path, line: str) -> None:
    end = grade(write(tmp_path, f"codec/good must c0\n{line}\n"))
    assert end.status == 1
    assert line.split()[0] in end.output
    assert "1 passed, 1 failed" in end.output


def test_only_notes_what_should_be(grade: Grade, tmp_path: Path) -> None:
    end = grade(write(tmp_path, "codec/good must c0\ncodec/bad should c1\n"))
    assert end.status == 0
    assert "1 noted" in end.output


@pytest.mark.parametrize("text", ["", "infer/x must c0\n"])
def test_no_vectors_are_no_success(client: Client, tmp_path: Path, text: str) -> None:
    assert client.alone("--vectors", str(write(tmp_path, text.replace("infer", "exchange")))).status == 1


def test_missing_folder_is_no_success(client: Client, tmp_path: Path) -> None:
    assert client.alone("--vectors", str(tmp_path / "nowhere")).status == 1


def seeds() -> dict[bytes, str]:
    """Honest frames, in which every part of the codec is at work, and the layer of each."""
    observation = {
        "images": {"cam": np.arange(24, dtype=np.uint8).reshape(1, 2, 4, 3)},
        "states": {"obs": np.array([[1.0, -2.0, np.pi]]), "half": np.array([[0.5]], np.float16)},
        "text": np.array(["grün 🤖"]),
    }
    infer = {
        "message_type": "infer",
        "data": observation,
        "env_indices": np.arange(1),
        "step_ids": np.zeros(1, np.int64),
    }
    strange = {
        "scalars": [np.float32(1.5), np.uint8(255), np.int16(-300), np.bool_(True), np.int64(-(2**60))],
        "ints": [0, 127, 128, 255, 256, 65535, 65536, 2**32, 2**64 - 1, -1, -32, -33, -129, -32769, -(2**31) - 1],
        "others": [None, True, False, 1.5, "é", b"\0\xff", [], {}, {"": {b"": []}}],
        "arrays": [np.array([True, False]), np.zeros((0, 3)), np.float64(2).reshape(()), np.array([1, 2], ">u4")],
    }
    action = {"message_type": "action", "data": {"env_ids": np.arange(2), "action": np.zeros((1, 2, 2), np.float32)}}
    metadata = {"message_type": "metadata", "data": {"features": ["a", "b"], "protocol_version": 1}}
    named = {"infer": infer, "codec": strange, "action": action, "metadata": metadata}
    return {encode(message): layer for layer, message in named.items()}


def mutated(frame: bytes, source: random.Random) -> bytes:
    changed = bytearray(frame)
    for _ in range(source.choice([1, 1, 1, 2])):
        at = source.randrange(len(changed))
        what = source.randrange(5)
        if what == 0:
            changed[at] ^= 1 << source.randrange(8)
        elif what == 1:
            changed[at] = source.randrange(256)
        elif what == 2:
            del changed[at : at + source.randint(1, 4)]
        elif what == 3:
            changed[at:at] = bytes(source.randrange(256) for _ in range(source.randint(1, 3)))
        else:
            changed[at] = (changed[at] + source.choice([-1, 1])) % 256
    return bytes(changed) or b"\xc1"


def verdict(layer: str, frame: bytes) -> str:
    """What the project's own codec and messages say."""
    try:
        value = decode(frame)
        if layer != "codec":
            message = message_from_wire(value)
            assert type(message).__name__.lower() == layer
    except (ProtocolError, AssertionError):
        return "reject"
    return "accept"


def test_agrees_with_the_package_on_mutated_frames(client: Client, harness: Path, tmp_path: Path) -> None:
    """The codecs share no line: where they agree on thousands of frames, none has a private idea of the rules."""
    source = random.Random(7)
    lines, frames, same = [], seeds(), 0
    for number in range(3000):
        seed = source.choice(list(frames))
        frame = mutated(seed, source)
        layer = source.choice(["codec", frames[seed]])
        judgement = verdict(layer, frame)
        same += judgement == "accept" and layer != "infer" and raw.encode(raw.decode(frame)) == frame
        lines.append(f"{layer}/{number} {judgement} {frame.hex()}")
    accepted = sum(" accept " in line for line in lines)
    assert 500 < accepted < 2500
    if client.name == "plugrl_client":
        client = Client(client.name, (str(harness),))
    end = client.alone("--vectors", str(write(tmp_path, "\n".join(lines))))
    assert end.status == 0, end.output[-6000:]
    assert f"{same} encoded again byte for byte" in end.output


def test_reference_server_agrees_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = random.Random(8)
    lines = []
    for number in range(1500):
        frame = mutated(next(iter(seeds())), source)
        lines.append(f"infer/{number} {verdict('infer', frame)} {frame.hex()}")
    status = reference_server.main(["--vectors", str(write(tmp_path, "\n".join(lines)))])
    assert status == 0, capsys.readouterr().err[-6000:]
