"""A stand-in for an openpi policy server, from its documented frames; shares no code with the packages.

On connecting: a msgpack map with metadata. Then for each observation (a map) a map with `actions` and `server_timing`;
when the policy raises, a text frame with the traceback, and a close with 1011. Arrays are encoded by openpi's hooks.
"""

import contextlib
import traceback

import msgpack
import numpy as np
from websockets.exceptions import ConnectionClosed
from websockets.frames import CloseCode
from websockets.sync.server import serve


def pack(value):
    """openpi's packing hook, as published."""
    if isinstance(value, np.ndarray):
        data = {b"data": value.tobytes(), b"dtype": value.dtype.str, b"shape": value.shape}
        return {b"__ndarray__": True, **data}
    if isinstance(value, np.generic):
        return {b"__npgeneric__": True, b"data": value.item(), b"dtype": value.dtype.str}
    return value


def unpack(value):
    """openpi's unpacking hook, as published."""
    if b"__ndarray__" in value:
        return np.ndarray(buffer=value[b"data"], dtype=np.dtype(value[b"dtype"]), shape=value[b"shape"])
    if b"__npgeneric__" in value:
        return np.dtype(value[b"dtype"]).type(value[b"data"])
    return value


class OpenPIServer:
    """Serves `infer(observation) -> answer` on a port of the system's choice, in threads, until it is closed.

    Args:
        infer: The policy: takes a map and returns one.
        api_key: What `Authorization` has to hold, None for anything.
        metadata: What is said first.

    Attributes:
        port: Where it listens.
        seen: The observations, in order.
        connections: How many there were.
    """

    def __init__(self, infer, *, api_key=None, metadata=None):
        self.seen, self.connections = [], 0
        self.infer, self._api_key, self._metadata = infer, api_key, metadata or {"config": "pi0_test"}
        self._server = serve(
            self._handle, "127.0.0.1", 0, compression=None, max_size=None, process_request=self._process_request
        )
        self.port = self._server.socket.getsockname()[1]

    def run(self):
        """Serves until `close`."""
        self._server.serve_forever()

    def close(self):
        """Ends it."""
        self._server.shutdown()

    def _process_request(self, connection, request):
        if self._api_key is not None and request.headers.get("Authorization") != f"Api-Key {self._api_key}":
            return connection.respond(401, "no\n")
        return None

    def _handle(self, connection):
        self.connections += 1
        with contextlib.suppress(ConnectionClosed):
            connection.send(msgpack.packb(self._metadata, default=pack))
            while True:
                observation = msgpack.unpackb(connection.recv(), object_hook=unpack)
                self.seen.append(observation)
                try:
                    answer = self.infer(observation)
                except ConnectionResetError:
                    connection.socket.close()  # as a machine that is switched off
                    return
                except Exception:
                    connection.send(traceback.format_exc())
                    connection.close(CloseCode.INTERNAL_ERROR, "Internal server error. Traceback in previous frame.")
                    return
                if isinstance(answer, bytes):
                    connection.send(answer)
                else:
                    connection.send(msgpack.packb({**answer, "server_timing": {"infer_ms": 1.5}}, default=pack))
