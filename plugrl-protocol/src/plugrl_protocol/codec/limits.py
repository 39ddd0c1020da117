"""How much one message may hold (SPEC 3.3), so that no peer can make the other run out of memory."""

MAX_DEPTH = 16
"""Containers inside one another. An array counts as a map that holds the list of its shape."""

MAX_ELEMENTS = 65_536
"""Elements in all containers together; an entry of a map is two, its key and its value."""

MAX_DIMENSIONS = 32
"""Dimensions of an array: NumPy 1 has no more."""

MAX_WIDE_TEXT = 512 * 2**10
"""Bytes of all str that are not ASCII together: in memory each may take four times its size."""
