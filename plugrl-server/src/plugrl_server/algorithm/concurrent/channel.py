"""Messages between two processes of one run: pickled, with large arrays sent as they lie in memory."""

import pickle
import struct
from multiprocessing.connection import Connection
from typing import Any

LARGE = 64 * 1024
"""Arrays of at least so many bytes are not copied into the pickle."""


def send(connection: Connection, message: Any) -> int:
    """Send a message and return its size in bytes. It has been copied when this returns.

    Raises:
        OSError: The other end is gone.
    """
    large: list[memoryview] = []

    def keep_inside(buffer: pickle.PickleBuffer) -> bool:
        view = buffer.raw()
        if view.nbytes < LARGE:
            return True
        large.append(view)
        return False

    data = pickle.dumps(message, protocol=5, buffer_callback=keep_inside)
    connection.send_bytes(struct.pack(f"!{len(large)}Q", *(view.nbytes for view in large)) or b"\0")
    connection.send_bytes(data)
    for view in large:
        connection.send_bytes(view)
    return len(data) + sum(view.nbytes for view in large)


def receive(connection: Connection) -> tuple[Any, int]:
    """Wait for a message, and return it with its size in bytes.

    Raises:
        EOFError: The other end is gone.
    """
    head = connection.recv_bytes()
    sizes = struct.unpack(f"!{len(head) // 8}Q", head) if len(head) > 1 else ()
    data = connection.recv_bytes()
    buffers = [bytearray(size) for size in sizes]
    for buffer in buffers:
        connection.recv_bytes_into(buffer)
    return pickle.loads(data, buffers=buffers), len(data) + sum(sizes)  # noqa: S301 - from a process of this run
