"""PNG files are exact, whatever the filter; other numbers of channels can be looked at."""

import struct
import zlib

import numpy as np
import pytest
from plugrl_env_client.recording.formats.picture import coloured, picture, png

RNG = np.random.default_rng(0)
GRADIENT = (np.arange(30)[:, np.newaxis] * 3 + np.arange(40)).astype(np.uint8)


def read_png(data):
    """A literal reader of 8-bit PNG (RFC 2083), pixel by pixel."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    chunks, at = [], 8
    while at < len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        assert struct.unpack(">I", data[at + 8 + length : at + 12 + length]) == (zlib.crc32(kind + body),)
        chunks.append((kind, body))
        at += 12 + length
    assert [kind for kind, _ in chunks] == [b"IHDR", b"IDAT", b"IEND"]
    width, height, depth, colour, *rest = struct.unpack(">IIBBBBB", chunks[0][1])
    assert (depth, rest) == (8, [0, 0, 0])
    size = {0: 1, 2: 3}[colour]
    raw = zlib.decompress(chunks[1][1])
    rows, filters = [], set()
    for y in range(height):
        line = raw[y * (width * size + 1) : (y + 1) * (width * size + 1)]
        filters.add(line[0])
        row = []
        for x, value in enumerate(line[1:]):
            left = row[x - size] if x >= size else 0
            above = rows[-1][x] if rows else 0
            row.append((value + [0, left, above][line[0]]) % 256)
        rows.append(row)
    shape = (height, width) if size == 1 else (height, width, 3)
    return np.array(rows, np.uint8).reshape(shape), filters


@pytest.mark.parametrize(
    ("image", "filters"),
    [
        (RNG.integers(0, 256, (9, 7, 3), np.uint8), None),
        (RNG.integers(0, 256, (5, 11), np.uint8), None),
        (GRADIENT, {1, 2}),
        (np.zeros((4, 4, 3), np.uint8), {0}),
        (np.full((1, 1), 200, np.uint8), None),
    ],
)
def test_png_is_exact(image, filters):
    read, used = read_png(png(image))
    np.testing.assert_array_equal(read, image)
    assert filters is None or used <= filters


def test_smooth_pictures_become_small():
    smooth = np.repeat(np.cumsum(np.ones((64, 64), np.uint8), axis=1)[..., np.newaxis], 3, axis=2) * 2
    assert len(png(smooth)) < smooth.nbytes / 30


def test_one_channel_is_grey_and_three_are_colours():
    grey, colour = np.zeros((4, 5, 1), np.uint8), RNG.integers(0, 256, (4, 5, 3), np.uint8)
    assert picture(grey).shape == (4, 5)
    assert coloured(grey).shape == (4, 5, 3)
    np.testing.assert_array_equal(picture(colour), colour)
    np.testing.assert_array_equal(coloured(colour), colour)


def test_other_numbers_are_grey_pictures_side_by_side():
    stack = RNG.integers(0, 256, (4, 5, 2), np.uint8)
    shown = picture(stack)
    np.testing.assert_array_equal(shown[:, :5], stack[..., 0])
    np.testing.assert_array_equal(shown[:, 5:], stack[..., 1])
