"""Row operations on trees of arrays.

A tree is a dict, list or tuple of trees, a leaf, or None. A leaf is a NumPy array or a torch tensor whose leading axis
counts rows (environments, or frames of a buffer). Torch is recognised without being imported.

Two stores of rows grow with what is put into them: `GrowingRows`, and `RowPool`, whose rows are used again.
"""

import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

Tree: TypeAlias = Any
Index: TypeAlias = Any
"""A slice, an integer array or a boolean mask over the leading axis."""

FIRST_ROWS = 1024
"""Rows that a growing store allocates at first."""


def is_tensor(value: object) -> bool:
    """Return whether a value is a torch tensor; never imports torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def map_leaves(function: Callable[..., Any], tree: Tree, *rest: Tree) -> Tree:
    """Return the tree of `function(leaf, *leaves at the same place of the other trees)`; None stays None.

    Raises:
        ValueError: The trees differ in structure; the text names the keys or lengths.
    """
    if tree is None:
        return None
    if isinstance(tree, dict):
        for other in rest:
            if not isinstance(other, dict) or other.keys() != tree.keys():
                raise ValueError(f"Trees differ: {_outline(tree)} against {_outline(other)}.")
        return {key: map_leaves(function, value, *(other[key] for other in rest)) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        for other in rest:
            if not isinstance(other, list | tuple) or len(other) != len(tree):
                raise ValueError(f"Trees differ: {_outline(tree)} against {_outline(other)}.")
        mapped = [map_leaves(function, *values) for values in zip(tree, *rest, strict=True)]
        return type(tree)(*mapped) if hasattr(tree, "_fields") else type(tree)(mapped)
    return function(tree, *rest)


def leading(tree: Tree) -> int | None:
    """Return the number of rows of a tree's first leaf, or None for a tree without leaves."""
    if tree is None:
        return None
    if isinstance(tree, dict | list | tuple):
        children = tree.values() if isinstance(tree, dict) else tree
        return next((rows for rows in map(leading, children) if rows is not None), None)
    return len(tree)


def take(tree: Tree, index: Index) -> Tree:
    """Return the rows `index` of every leaf (views where `index` is a slice)."""
    return map_leaves(lambda leaf: leaf[index], tree)


def put(store: Tree, index: Index, tree: Tree) -> None:
    """Write a tree's rows into the rows `index` of a store of the same structure, casting to the store's dtypes."""

    def write(into: Any, leaf: Any) -> None:
        into[index] = leaf.detach().numpy(force=True) if is_tensor(leaf) and not is_tensor(into) else leaf

    map_leaves(write, store, tree)


def alloc_like(tree: Tree, rows: int) -> Tree:
    """Return a zeroed NumPy store of `rows` rows with the structure, row shapes and dtypes of an example."""

    def allocate(leaf: Any) -> np.ndarray:
        array = as_numpy(leaf)
        return np.zeros((rows, *array.shape[1:]), array.dtype)

    return map_leaves(allocate, tree)


def concat(trees: Sequence[Tree]) -> Tree:
    """Return one tree with the rows of several, in order; a single tree is returned as it is.

    Raises:
        ValueError: There are no trees, or they differ in structure.
    """
    if not trees:
        raise ValueError("Nothing to concatenate: at least one tree is needed.")
    if len(trees) == 1:
        return trees[0]
    return map_leaves(_join, *trees)


def _join(*leaves: Any) -> Any:
    if is_tensor(leaves[0]):
        return sys.modules["torch"].cat(leaves)
    return np.concatenate(leaves)


def as_numpy(leaf: Any) -> np.ndarray:
    """Return a leaf as a NumPy array (a view where it lies on the CPU)."""
    if is_tensor(leaf):
        array: np.ndarray = leaf.detach().numpy(force=True)
        return array
    return np.asarray(leaf)


def _outline(tree: Tree) -> str:
    if isinstance(tree, dict):
        return f"a dict with keys {sorted(map(str, tree))}"
    if isinstance(tree, list | tuple):
        return f"a {type(tree).__name__} of length {len(tree)}"
    return f"a {type(tree).__name__}"


class GrowingRows:
    """Rows of a tree in NumPy arrays, whose memory doubles when it is full; nothing is allocated before the first row.

    Args:
        limit: Rows it will never need more of; None for no limit.

    Attributes:
        tree: The rows; those from `used` on are not in use. None before the first one.
        used: Rows in use, up to the highest.
    """

    def __init__(self, limit: int | None = None) -> None:
        self.tree: Tree = None
        self.used = 0
        self._limit = limit
        self._allocated = 0

    def put(self, rows: np.ndarray, values: Tree) -> None:
        """Write a tree of leading m into these rows, i8[m], of which there is at least one."""
        self._use(int(rows.max()) + 1, values)
        put(self.tree, rows, values)

    def rows(self) -> Tree:
        """Return views of the rows in use."""
        return take(self.tree, slice(0, self.used))

    def _use(self, rows: int, like: Tree) -> None:
        """Have the first rows in use, so many of them at least, of the structure of an example."""
        if rows > self._allocated:
            doubled = max(rows, 2 * self._allocated, FIRST_ROWS)
            self._allocated = doubled if self._limit is None else min(doubled, self._limit)
            grown = alloc_like(like, self._allocated)  # zeros that the system commits when they are written to
            if self.tree is not None:
                put(grown, slice(0, self.used), self.rows())
            self.tree = grown
        self.used = max(self.used, rows)


class RowPool(GrowingRows):
    """Rows that are given back when nobody needs them any more, and then used again."""

    def __init__(self) -> None:
        super().__init__()
        self._free: list[int] = []

    @property
    def in_use(self) -> int:
        """Rows that were added and not given back."""
        return self.used - len(self._free)

    def add(self, n: int, values: Tree) -> np.ndarray:
        """Write a tree of leading n into n rows that nobody uses, and return these, i8[n]."""
        reused = [self._free.pop() for _ in range(min(n, len(self._free)))]
        fresh = range(self.used, self.used + n - len(reused))
        rows = np.array([*reused, *fresh], np.int64)
        if n:
            self._use(fresh.stop, values)
            put(self.tree, rows, values)
        return rows

    def give_back(self, rows: np.ndarray) -> None:
        """Let these rows, i8[m], be used again."""
        self._free += rows.tolist()

    def clear(self) -> None:
        """Give back all rows; what was allocated is kept."""
        self.used = 0
        self._free.clear()
