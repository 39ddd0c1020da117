"""What a hostile server can send: both clients, the C++ one under AddressSanitizer and UBSan, only ever say no."""

import base64
import hashlib
import random
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from plugrl_protocol.codec import encode

from tests.peers.processes import raw, raw_client

GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
METADATA = encode({"message_type": "metadata", "data": {"features": ["reuse-feedback-obs"], "protocol_version": 1}})


def head(opcode: int, length: int, *, fin: bool = True, rsv: int = 0, masked: bool = False, form: int = 0) -> bytes:
    """A frame header; `form` 2 or 8 asks for a longer length than needed."""
    first, mask = opcode | 0x80 * fin | rsv << 4, 0x80 * masked
    if form == 8 or (not form and length > 0xFFFF):
        return bytes([first, mask | 127]) + struct.pack(">Q", length)
    if form == 2 or (not form and length > 125):
        return bytes([first, mask | 126]) + struct.pack(">H", length)
    return bytes([first, mask | length])


def frame(payload: bytes, opcode: int = 2, **options: bool | int) -> bytes:
    return head(opcode, len(payload), **options) + payload


def close_frame(code: int, reason: bytes = b"") -> bytes:
    return frame(struct.pack(">H", code) + reason, 8)


def action(**data: object) -> bytes:
    return frame(encode({"message_type": "action", "data": data}))


def ndarray(data: object = b"\0" * 8, dtype: object = "<f8", shape: object = (1,), marker: object = True) -> bytes:
    """An ndarray map, however wrong."""
    pairs = [(b"__ndarray__", marker), (b"data", data), (b"dtype", dtype), (b"shape", list(shape))]
    return b"\x84" + b"".join(encode(key) + encode(value) for key, value in pairs)


def with_array(array: bytes) -> bytes:
    """An action whose array is `array`."""
    data = b"\x82" + encode("env_ids") + encode(np.arange(3)) + encode("action") + array
    return frame(b"\x82" + encode("message_type") + encode("action") + encode("data") + data)


HANDSHAKES = {
    "nothing": b"",
    "not HTTP": b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
    "404": b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
    "401": b"HTTP/1.1 401 Unauthorized\r\n\r\n",
    "no end": b"HTTP/1.1 101 Switching Protocols\r\nX: " + b"y" * 20_000,
    "no key": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
    "lines without colons": b"HTTP/1.1 101 OK\r\nUpgrade\r\n:\r\n\r\r\n \r\n\r\n",
    "zeros": b"\0" * 64 + b"\r\n\r\n",
}

FRAMES = {
    "nothing": b"",
    "reserved bits": frame(METADATA, rsv=4),
    "masked": head(2, 4, masked=True) + b"\0\0\0\0abcd",
    "unknown data opcode": frame(b"", 5),
    "unknown control opcode": frame(b"", 11),
    "text": frame(b"hello", 1),
    "text of 2^62 bytes": head(1, 2**62),
    "continuation of nothing": frame(METADATA, 0),
    "message inside a message": frame(b"\x82", fin=False) + frame(METADATA),
    "text inside a message": frame(b"\x82", fin=False) + frame(b"hi", 1),
    "ping in parts": frame(b"x", 9, fin=False),
    "long ping": frame(b"x" * 126, 9),
    "long close": frame(b"\x03\xe8" + b"x" * 200, 8),
    "length of 2^63": head(2, 2**63, form=8),
    "frame over the cap": head(2, 2**40, form=8) + METADATA,
    "promise of 200 MiB": head(2, 200 * 2**20) + METADATA,
    "fragments over the cap": frame(b"x" * 100, fin=False) + head(0, 2**32, form=8),
    "length in a longer form": frame(METADATA, form=8)[:-3],
    "half a header": b"\x82",
    "half a length": b"\x82\x7f\0\0\0",
    "close without a code": frame(b"", 8),
    "close with half a code": frame(b"\x03", 8),
    "close with code 0": close_frame(0),
    "close with code 1005": close_frame(1005),
    "close with code 1006": close_frame(1006),
    "close with code 2999": close_frame(2999),
    "close with code 65535": close_frame(65535),
    "close with a broken reason": close_frame(1001, b"\xff\xfe"),
    "close with an overlong reason": close_frame(1001, b"\xc0\xaf"),
    "close with a surrogate": close_frame(1001, b"\xed\xa0\x80"),
    "close beyond Unicode": close_frame(1001, b"\xf4\x90\x80\x80"),
    "final close": close_frame(1008, b"plugrl-server-reject: because"),
    "close, then more": close_frame(1001) + frame(METADATA) * 3,
    "empty message": frame(b""),
    "pings without end": frame(b"ping", 9) * 300,
}

MESSAGES = {
    "nil": b"\xc0",
    "never used": b"\xc1",
    "ext": b"\xd4\x01\x00",
    "bytes behind": METADATA + b"\xc0",
    "cut map": METADATA[:-1],
    "int key": b"\x81\x01\x02",
    "list key": b"\x81\x90\x02",
    "map of 2^32": b"\xdf\xff\xff\xff\xff",
    "list of 2^32": b"\xdd\xff\xff\xff\xff",
    "list of 65537": b"\xdd\x00\x01\x00\x01" + b"\xc0" * 65_537,
    "str of 2^32": b"\xdb\xff\xff\xff\xff",
    "bin of 2^32": b"\xc6\xff\xff\xff\xff",
    "deep": b"\x91" * 17 + b"\xc0",
    "very deep": b"\x91" * 100_000,
    "deep maps": b"\x81\xa0" * 5_000,
    "lists that never fill": b"\xdd\x00\x00\xff\xff" * 1_000,
    "broken str": b"\xa2\xc3\x28",
    "no message_type": encode({"data": {}}),
    "message_type nil": encode({"message_type": None, "data": {}}),
    "infer": encode({"message_type": "infer", "data": {}}),
    "data a list": encode({"message_type": "metadata", "data": []}),
    "data with bin keys": encode({"message_type": "metadata", "data": {b"a": 1}}),
    "features a map": encode({"message_type": "metadata", "data": {"features": {"a": "b"}}}),
    "features of ints": encode({"message_type": "metadata", "data": {"features": [1]}}),
    "version an array": encode({"message_type": "metadata", "data": {"protocol_version": np.zeros(3)}}),
}

ARRAYS = {
    "nil data": ndarray(data=None),
    "str data": ndarray(data="12345678"),
    "short data": ndarray(data=b"\0" * 7),
    "long data": ndarray(data=b"\0" * 9),
    "object dtype": ndarray(dtype="|O"),
    "void dtype": ndarray(dtype="|V8"),
    "datetime dtype": ndarray(dtype="<M8[s]"),
    "complex dtype": ndarray(dtype="<c8"),
    "bytes dtype": ndarray(dtype="|S8"),
    "f16": ndarray(dtype="<f16", data=b"\0" * 16),
    "f1": ndarray(dtype="|f1", data=b"\0"),
    "i3": ndarray(dtype="<i3", data=b"\0" * 3),
    "no order": ndarray(dtype="f8"),
    "order that does not fit": ndarray(dtype="|f8"),
    "empty dtype": ndarray(dtype=""),
    "dtype nil": ndarray(dtype=None),
    "endless dtype": ndarray(dtype="<f" + "9" * 300),
    "U0": ndarray(dtype="<U0", data=b""),
    "huge U": ndarray(dtype="<U99999999", data=b"\0" * 8),
    "UTF-32 beyond Unicode": ndarray(dtype="<U2", data=b"\xff" * 8),
    "bools of 2": ndarray(dtype="|b1", data=b"\2"),
    "negative shape": ndarray(shape=(-1,)),
    "float shape": ndarray(shape=(1.0,)),
    "bool shape": ndarray(shape=(True,)),
    "33 dimensions": ndarray(shape=(1,) * 33),
    "shape that wraps": ndarray(shape=(2**32, 2**32, 2**32)),
    "shape that wraps to 8": ndarray(shape=(2**61 + 1,)),
    "empty shape that wraps": ndarray(shape=(0, 2**63, 2**63), data=b""),
    "marker false": ndarray(marker=False),
    "marker 1": ndarray(marker=1),
    "missing shape": b"\x83" + ndarray()[1 : -len(encode(b"shape")) - 2],
    "no dimensions": ndarray(shape=()),
    "no steps": encode(np.zeros((0, 3, 2))),
    "no envs": encode(np.zeros((2, 0, 2))),
    "two envs": encode(np.zeros((2, 2, 2))),
    "infinite": encode(np.full((2, 3, 2), np.inf)),
    "text": encode(np.full((2, 3), "x")),
    "a scalar": b"\x83\xc4\x0d__npgeneric__\xc3\xc4\x04data\xcb" + b"\0" * 8 + b"\xc4\x05dtype\xa3<f4",
    "scalar that does not fit": b"\x83\xc4\x0d__npgeneric__\xc3\xc4\x04data\xcd\xff\xff\xc4\x05dtype\xa3|u1",
    "scalar of text": b"\x83\xc4\x0d__npgeneric__\xc3\xc4\x04data\xa1x\xc4\x05dtype\xa3<U1",
    "scalar without dtype": b"\x82\xc4\x0d__npgeneric__\xc3\xc4\x04data\x01",
}


class HostileServer:
    """Plays one byte string a connection, after as much of a proper handshake as the case leaves."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]

    def play(self, cases: Sequence[tuple[bool, bytes]]) -> None:
        """`(False, b)`: b is all the client gets. `(True, b)`: it is upgraded first."""
        with self._listener:
            for upgrade, payload in cases:
                connection, _ = self._listener.accept()
                with connection:
                    self._serve(connection, upgrade, payload)

    def _serve(self, connection: socket.socket, upgrade: bool, payload: bytes) -> None:
        connection.settimeout(10)
        try:
            request = self.request(connection)
            connection.sendall(self.accept(request) + payload if upgrade else payload)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(2**16):
                pass
        except OSError:
            pass  # the client has had enough

    @staticmethod
    def request(connection: socket.socket) -> bytes:
        request = b""
        while b"\r\n\r\n" not in request:
            received = connection.recv(2**16)
            if not received:
                raise ConnectionError("the client has left")
            request += received
        return request

    @staticmethod
    def accept(request: bytes) -> bytes:
        key = request.split(b"Sec-WebSocket-Key: ")[1].split(b"\r\n")[0]
        digest = base64.b64encode(hashlib.sha1(key + GUID.encode()).digest())
        return (
            b"HTTP/1.1 101 Switching Protocols\r\nUPGRADE: WebSocket\r\nconnection: keep-alive, upgrade\r\n"
            b"sec-websocket-accept:  " + digest + b" \r\n\r\n"
        )


Attack = Callable[[Sequence[tuple[bool, bytes]]], tuple[list[int], str]]


def attack_cpp(harness: Path, server: HostileServer, count: int) -> tuple[list[int], str]:
    """All connections from one process, which has to live through them."""
    command = [str(harness), "connect", str(server.port), str(count)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    assert "Sanitizer" not in done.stderr
    assert "runtime error" not in done.stderr
    return [int(line) for line in done.stdout.split()], done.stderr


def attack_python(server: HostileServer, count: int) -> tuple[list[int], str]:
    """The same for the Python client, whose frames are the library's to judge, and the messages its own."""
    ends = [raw_client().run(server.port, "--probe", "--steps", "4", "--max-reconnects", "0") for _ in range(count)]
    return [end.status for end in ends], "".join(end.output for end in ends)


@pytest.fixture(params=["raw_client", "plugrl_client"])
def attack(request: pytest.FixtureRequest) -> Attack:
    """Plays the cases with a client; returns its exit statuses and what it said."""

    def run(cases: Sequence[tuple[bool, bytes]]) -> tuple[list[int], str]:
        server = HostileServer()
        thread = threading.Thread(target=server.play, args=(cases,), daemon=True)
        thread.start()
        try:
            if request.param == "raw_client":
                return attack_python(server, len(cases))
            return attack_cpp(request.getfixturevalue("harness"), server, len(cases))
        finally:
            thread.join(timeout=10)

    return run


def test_handshakes(attack: Attack) -> None:
    statuses, said = attack([(False, payload) for payload in HANDSHAKES.values()])
    assert statuses == [1] * len(HANDSHAKES)
    assert "HTTP 401" in said
    assert said.count("1006 no upgrade") >= 5


def test_frames(attack: Attack) -> None:
    statuses, said = attack([(True, payload) for payload in FRAMES.values()])
    assert statuses == [1] * len(FRAMES)
    assert "1008 plugrl-server-reject: because" in said


def test_messages(attack: Attack) -> None:
    statuses, _ = attack([(True, frame(payload)) for payload in MESSAGES.values()])
    assert statuses == [1] * len(MESSAGES)


def test_arrays(attack: Attack) -> None:
    statuses, _ = attack([(True, frame(METADATA) + with_array(array)) for array in ARRAYS.values()])
    assert statuses == [1] * len(ARRAYS)


def test_honest_server_through_the_same_door(attack: Attack) -> None:
    """The clients do not refuse everything."""
    good = action(env_ids=np.arange(3), action=np.zeros((4, 3, 2), np.float32))
    statuses, said = attack([(True, frame(METADATA) + good + close_frame(1001, b"plugrl-server-stop"))])
    assert statuses == [0]
    assert "the server has ended the run" in said


def mutated(seed: int, count: int) -> list[tuple[bool, bytes]]:
    """Conversations that were honest until a few of their bytes were changed, lost or doubled."""
    random_source = random.Random(seed)
    good = action(env_ids=np.arange(3), action=np.zeros((4, 3, 2), np.float32))
    honest = frame(METADATA) + frame(b"hi", 9) + good + close_frame(1001, b"plugrl-server-stop")
    cases = []
    for _ in range(count):
        payload = bytearray(honest)
        for _ in range(random_source.randint(1, 6)):
            at = random_source.randrange(len(payload))
            what = random_source.randrange(4)
            if what == 0:
                payload[at] ^= 1 << random_source.randrange(8)
            elif what == 1:
                payload[at] = random_source.randrange(256)
            elif what == 2:
                del payload[at : at + random_source.randint(1, 9)]
            else:
                payload[at:at] = payload[at : at + random_source.randint(1, 40)]
        cases.append((True, bytes(payload)))
    return cases


def test_mutations(attack: Attack) -> None:
    statuses, _ = attack(mutated(seed=20, count=400))
    assert set(statuses) <= {0, 1}
    assert len(statuses) == 400


@pytest.fixture
def silence() -> Iterator[int]:
    """The port of a server that greets one client, and then neither says nor answers anything."""
    over = threading.Event()

    def play() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(HostileServer.accept(HostileServer.request(connection)) + frame(METADATA))
            over.wait(timeout=30)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=play)
        thread.start()
        yield listener.getsockname()[1]
        over.set()
        thread.join()


def test_plugrl_client_gives_up_on_a_silent_server(harness: Path, silence: int) -> None:
    """Lesson 13: the harness waits 0.2 s for data and 0.4 s for a pong."""
    done = subprocess.run([str(harness), "connect", str(silence), "1"], capture_output=True, timeout=20, check=True)
    assert b"the server answers no pings" in done.stderr


def test_raw_client_gives_up_on_a_silent_server(silence: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lesson 13."""
    for name, seconds in {"PING_SECONDS": 0.1, "GIVE_UP_SECONDS": 0.3, "CLOSE_SECONDS": 0.1}.items():
        monkeypatch.setattr(raw, name, seconds)
    end = raw_client().run(silence, "--probe", "--max-reconnects", "0")
    assert "the server has answered no ping for 0.3 s" in end.output
