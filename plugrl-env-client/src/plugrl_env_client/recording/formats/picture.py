"""Images as people look at them, and PNG files of them written with the standard library."""

import struct
import zlib

import numpy as np

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_GREY, _COLOUR = 0, 2  # PNG colour types


def picture(image: np.ndarray) -> np.ndarray:
    """An image of any number of channels as one that can be shown.

    Args:
        image: uint8[h,w,c].

    Returns:
        uint8[h,w] for one channel, uint8[h,w,3] for three. Other numbers are taken for as many grey images (stacked
        frames, say), which are put side by side: uint8[h,w*c].
    """
    height, width, channels = image.shape
    if channels == 3:
        return image
    return image.transpose(0, 2, 1).reshape(height, width * channels)


def coloured(image: np.ndarray) -> np.ndarray:
    """As `picture`, but always uint8[h,w',3]."""
    shown = picture(image)
    return np.repeat(shown[..., np.newaxis], 3, axis=2) if shown.ndim == 2 else shown


def png(shown: np.ndarray) -> bytes:
    """A PNG file, lossless (RFC 2083).

    Args:
        shown: uint8[h,w] grey or uint8[h,w,3] colour.
    """
    height, width = shown.shape[:2]
    colour, depth = (_GREY, 1) if shown.ndim == 2 else (_COLOUR, 3)
    header = struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0)
    data = zlib.compress(_filtered(shown.reshape(height, width * depth), depth).tobytes(), 6)
    return _SIGNATURE + _chunk(b"IHDR", header) + _chunk(b"IDAT", data) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _filtered(rows: np.ndarray, depth: int) -> np.ndarray:
    """uint8[h, 1 + w]: each row with the filter (none, left, above) that leaves the smallest differences (9.6)."""
    left = rows.copy()
    left[:, depth:] -= rows[:, :-depth]
    above = rows.copy()
    above[1:] -= rows[:-1]
    candidates = np.stack([rows, left, above])
    cost = np.abs(candidates.view(np.int8).astype(np.int16)).sum(axis=2)
    best = cost.argmin(axis=0)
    chosen = candidates[best, np.arange(len(rows))]
    return np.concatenate([best[:, np.newaxis].astype(np.uint8), chosen], axis=1)
