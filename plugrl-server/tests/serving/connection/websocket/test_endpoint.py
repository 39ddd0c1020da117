"""One WebSocket connection over a real socket, with a handler that only takes notes."""

import asyncio
import contextlib
import os
import socket
import struct
import time
import tracemalloc

import pytest
from plugrl_server.serving.connection.websocket.endpoint import FRAMES_AT_ONCE, WebSocketEndpoint
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed
from websockets.frames import Frame, Opcode

HANDSHAKE = (
    b"GET / HTTP/1.1\r\nHost: here\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


class Notes:
    """A handler that notes what happens, echoes on demand, and can be waited for."""

    def __init__(self):
        self.seen, self.endpoints, self.gone, self.reads = [], [], 0, 0
        self.echo = False
        self.changed = asyncio.Event()

    def note(self, *event):
        self.seen.append(event)
        self.changed.set()

    def opened(self):
        self.note("opened")

    def received(self, data):
        self.note("received", data)
        if self.echo:
            self.endpoints[-1].send(data)

    def received_text(self):
        self.note("text")

    def received_pong(self):
        self.note("pong")

    def closed(self, *, handshake, reason):
        self.note("closed", handshake, reason)

    async def until(self, *names):
        async with asyncio.timeout(5):
            while [event[0] for event in self.seen] != ["opened", *names]:
                self.changed.clear()
                await self.changed.wait()

    @property
    def messages(self):
        return [event[1] for event in self.seen if event[0] == "received"]


@contextlib.asynccontextmanager
async def listening(**options):
    notes, loop = Notes(), asyncio.get_running_loop()

    def gone(endpoint):
        notes.gone += 1
        notes.changed.set()

    def read():
        notes.reads += 1

    def make():
        settings = {"max_size": 2**24, "open_timeout": 5.0, "close_timeout": 2.0} | options
        notes.endpoints.append(
            WebSocketEndpoint(
                loop,
                respond=lambda protocol, request: protocol.accept(request),
                handle=lambda endpoint: notes,
                gone=gone,
                read=read,
                **settings,
            )
        )
        return notes.endpoints[-1]

    server = await loop.create_server(make, "127.0.0.1", 0)
    try:
        yield notes, server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for endpoint in notes.endpoints:
            endpoint.abort()
        await asyncio.sleep(0)


def client(port, **options):
    return connect(f"ws://127.0.0.1:{port}", compression=None, max_size=None, **options)


@contextlib.asynccontextmanager
async def tcp(port, first):
    """A TCP connection that has sent its first bytes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(first)
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


@contextlib.asynccontextmanager
async def raw(port, *frames):
    """A TCP connection that has sent a handshake and some frames."""
    async with tcp(port, HANDSHAKE) as (reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"".join(frame.serialize(mask=True) for frame in frames))
        yield reader, writer


def play(scenario):
    return asyncio.run(asyncio.wait_for(scenario(), 20))


def test_messages_go_both_ways():
    async def scenario():
        async with listening() as (notes, port), client(port) as ws:
            notes.echo = True
            await ws.send(b"hello")
            assert await ws.recv() == b"hello"
            assert notes.reads >= 2

    play(scenario)


def test_nagle_is_off():
    """Feedback has no reply: with Nagle every exchange would wait for a delayed ACK."""

    async def scenario():
        async with listening() as (notes, port), client(port):
            sock = notes.endpoints[0]._transport.get_extra_info("socket")
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)

    play(scenario)


def test_compression_is_never_negotiated():
    """SPEC 1.1."""

    async def scenario():
        async with listening() as (_, port), connect(f"ws://127.0.0.1:{port}", compression="deflate") as ws:
            assert ws.protocol.extensions == []

    play(scenario)


def test_a_message_may_come_in_fragments_with_pings_between():
    async def scenario():
        frames = [
            Frame(Opcode.BINARY, b"one ", fin=False),
            Frame(Opcode.PING, b"alive?"),
            Frame(Opcode.CONT, b"two ", fin=False),
            Frame(Opcode.CONT, b"three"),
            Frame(Opcode.BINARY, b"next"),
        ]
        async with listening() as (notes, port), raw(port, *frames) as (reader, _):
            await notes.until("received", "received")
            assert notes.messages == [b"one two three", b"next"]
            assert await reader.readexactly(8) == b"\x8a\x06alive?"

    play(scenario)


@pytest.mark.parametrize("fragments", [1, 2])
def test_a_text_message_is_told_once(fragments):
    async def scenario():
        frames = [Frame(Opcode.TEXT, b"no", fin=fragments == 1), Frame(Opcode.CONT, b"pe")][:fragments]
        async with listening() as (notes, port), raw(port, *frames, Frame(Opcode.BINARY, b"yes")):
            await notes.until("text", "received")

    play(scenario)


def test_pings_are_answered_and_pongs_are_told():
    async def scenario():
        async with listening() as (notes, port), client(port) as ws:
            await (await ws.ping())
            notes.endpoints[0].ping()
            await notes.until("pong")

    play(scenario)


def test_the_peers_close_ends_the_connection_cleanly():
    """SPEC 7.5."""

    async def scenario():
        async with listening() as (notes, port):
            async with client(port) as ws:
                await ws.close(1000)
            await notes.until("closed")
            assert notes.seen[-1][:2] == ("closed", True)
            assert "1000" in notes.seen[-1][2]
            await until_gone(notes)

    play(scenario)


async def until_gone(notes):
    async with asyncio.timeout(5):
        while not notes.gone:
            notes.changed.clear()
            await notes.changed.wait()


def test_messages_that_cross_our_close_are_still_received():
    """Accounting: the server reads on until the peer's close frame."""

    async def scenario():
        async with listening() as (notes, port), raw(port) as (reader, writer):
            await notes.until()
            notes.endpoints[0].close(1001, "plugrl-server-stop")
            assert not notes.endpoints[0].is_open
            writer.write(Frame(Opcode.BINARY, b"crossed").serialize(mask=True))
            writer.write(Frame(Opcode.CLOSE, struct.pack("!H", 1001)).serialize(mask=True))
            await notes.until("received", "closed")
            assert notes.messages == [b"crossed"]
            assert notes.seen[-1][1] is True
            frame = await reader.read()
            assert frame == b"\x88\x14" + struct.pack("!H", 1001) + b"plugrl-server-stop"

    play(scenario)


def test_a_lost_connection_is_told_once_without_handshake():
    async def scenario():
        async with listening() as (notes, port):
            async with raw(port) as (_, writer):
                await notes.until()
                writer.transport.abort()
                await notes.until("closed")
                await until_gone(notes)
            assert [event[1] for event in notes.seen if event[0] == "closed"] == [False]

    play(scenario)


def test_a_message_over_the_cap_is_refused_with_1009(caplog):
    """SPEC 1.1."""

    async def scenario():
        async with listening(max_size=1000) as (notes, port), client(port) as ws:
            await ws.send(bytes(1000))
            await ws.send(bytes(1001))
            with pytest.raises(ConnectionClosed) as closed:
                await ws.recv()
            assert closed.value.rcvd.code == 1009
            await notes.until("received", "closed")

    play(scenario)
    assert "message too big for --max-frame-mib" in caplog.text


def test_a_broken_frame_ends_only_this_connection():
    async def scenario():
        async with listening() as (notes, port), raw(port) as (reader, writer):
            writer.write(b"\x82\x05plain")  # not masked
            frame = await reader.read()
            assert frame[:4] == b"\x88" + frame[1:2] + struct.pack("!H", 1002)
            await notes.until("closed")

    play(scenario)


@pytest.mark.parametrize("opcode", [Opcode.BINARY, Opcode.PING, Opcode.CLOSE])
def test_a_peer_that_speaks_before_its_handshake_is_answered_is_dropped(opcode):
    async def scenario():
        async with listening() as (notes, port):
            async with tcp(port, HANDSHAKE + Frame(opcode, b"").serialize(mask=True)) as (reader, _):
                with contextlib.suppress(ConnectionError):
                    assert await reader.read() == b""
            await until_gone(notes)
            assert notes.seen == []

    play(scenario)


@pytest.mark.parametrize("nothing", [b"", b"GET / HTTP/1.1\r\nHost: here\r\n"])
def test_a_connect_that_never_finishes_its_handshake_is_evicted(nothing):
    """Lesson 5."""

    async def scenario():
        async with listening(open_timeout=0.05) as (notes, port), tcp(port, nothing) as (reader, _):
            with contextlib.suppress(ConnectionError):
                await reader.read()
            await until_gone(notes)
            assert notes.seen == []

    play(scenario)


@pytest.mark.parametrize("noise", [b"\x16\x03\x01\x02\x00\x01" * 20 + b"\r\n\r\n", b"SSH-2.0-x\r\n\r\n", b"A" * 20_000])
def test_noise_in_place_of_a_handshake_is_dropped(noise):
    async def scenario():
        async with listening() as (notes, port):
            async with tcp(port, noise) as (reader, _):
                with contextlib.suppress(ConnectionError):
                    await reader.read()
            await until_gone(notes)
            assert notes.seen == []

    play(scenario)


def test_a_peer_that_keeps_its_side_open_after_the_close_is_dropped():
    async def scenario():
        async with listening(close_timeout=0.05) as (notes, port), raw(port, Frame(Opcode.CLOSE, b"")):
            await notes.until("closed")
            await until_gone(notes)

    play(scenario)


@pytest.mark.parametrize(("mebibytes", "seconds"), [(2.25, 1.0), (64, 8.0)])
def test_large_messages_are_put_together_in_linear_time(mebibytes, seconds):
    """A quadratic reassembly of 64 MiB would take minutes; ours takes 0.1 s (the machine may be busy)."""
    message = os.urandom(2**20) * int(mebibytes) + bytes(int(mebibytes % 1 * 2**20))

    async def scenario():
        async with listening(max_size=2**28) as (notes, port), client(port) as ws:
            started = time.perf_counter()
            await ws.send(message)
            await notes.until("received")
            assert time.perf_counter() - started < seconds
            assert notes.messages[0] == message

    play(scenario)


def feed(endpoint, data):
    """Hand over bytes as one read of the socket."""
    endpoint.get_buffer(-1)[: len(data)] = data
    endpoint.buffer_updated(len(data))


def test_a_flood_of_small_frames_leaves_others_their_turn():
    """One read can hold 175,000 empty frames; handled in one go they would hold up every other client for a second."""
    flood = Frame(Opcode.PONG, b"").serialize(mask=True) * 10_000

    async def scenario():
        async with listening() as (notes, port), raw(port):
            await notes.until()
            endpoint = notes.endpoints[0]
            feed(endpoint, flood)
            assert len(notes.seen) == 1 + FRAMES_AT_ONCE
            assert not endpoint._transport.is_reading()
            while len(notes.seen) < 1 + 10_000:
                seen = len(notes.seen)
                await asyncio.sleep(0)
                assert len(notes.seen) <= seen + FRAMES_AT_ONCE
            await asyncio.sleep(0)
            assert endpoint._transport.is_reading()

    play(scenario)


def test_frames_that_wait_when_the_connection_is_lost_are_dropped():
    async def scenario():
        async with listening() as (notes, port), raw(port):
            await notes.until()
            feed(notes.endpoints[0], Frame(Opcode.PONG, b"").serialize(mask=True) * 1000)
            notes.endpoints[0].abort()
            await until_gone(notes)
            assert len(notes.seen) == 1 + FRAMES_AT_ONCE + 1
            assert notes.seen[-1][0] == "closed"

    play(scenario)


def test_what_a_peer_does_not_read_is_bounded():
    """Each ping is owed a pong; a peer that sends pings and reads nothing must not fill the server's memory."""
    pings = 200_000

    async def scenario():
        async with listening() as (notes, port), raw(port) as (reader, writer):
            await notes.until()
            transport = notes.endpoints[0]._transport
            writer.write(Frame(Opcode.PING, bytes(125)).serialize(mask=True) * pings)
            async with client(port) as ws:  # which is served meanwhile
                while transport.get_write_buffer_size() <= 2**16:
                    await (await ws.ping())
                for _ in range(20):
                    await (await ws.ping())
            assert transport.get_write_buffer_size() < 2**18
            for _ in range(pings):
                assert len(await reader.readexactly(127)) == 127

    play(scenario)


def test_small_fragments_take_no_more_memory_than_their_bytes():
    fragments = 20_000
    parts = Frame(Opcode.CONT, b"ab", fin=False).serialize(mask=True) * fragments

    async def scenario():
        async with listening() as (notes, port), raw(port), client(port) as ws:
            endpoint = notes.endpoints[0]
            feed(endpoint, Frame(Opcode.BINARY, b"", fin=False).serialize(mask=True))
            endpoint.get_buffer(-1)
            tracemalloc.start()
            try:
                feed(endpoint, parts)
                while not endpoint._transport.is_reading():
                    await (await ws.ping())
                held, _ = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            assert held < 5 * 2 * fragments
            feed(endpoint, Frame(Opcode.CONT, b"").serialize(mask=True))
            assert notes.messages == [b"ab" * fragments]

    play(scenario)
