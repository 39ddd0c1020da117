"""How the contracts speak: a broken clause is an AssertionError that says what was found and what to do."""

from typing import Any, NoReturn
from unittest import SkipTest

import numpy as np

from plugrl_server.learning import trees


class ContractBroken(AssertionError):  # noqa: N818 - pytest and readers know it as a failed assertion
    """An algorithm or a policy does not keep a clause; the text names the clause and both sides."""


def expect(holds: object, otherwise: str) -> None:
    """Check one thing.

    Raises:
        ContractBroken: It does not hold; `otherwise` is the text.
    """
    if not holds:
        raise ContractBroken(otherwise)


def skip(reason: str) -> NoReturn:
    """Leave a check out, as pytest and unittest both understand it."""
    raise SkipTest(reason)


def difference(first: Any, second: Any, path: str = "") -> str | None:
    """Return where two trees of arrays and plain values differ first, None where they are equal. NaN equals NaN."""
    if isinstance(first, dict) and isinstance(second, dict):
        if first.keys() != second.keys():
            return f"{path or 'the tree'}: keys {sorted(map(str, first))} against {sorted(map(str, second))}"
        pairs = [(f"{path}.{key}" if path else str(key), first[key], second[key]) for key in first]
    elif isinstance(first, list | tuple) and isinstance(second, list | tuple):
        if len(first) != len(second):
            return f"{path or 'the tree'}: {len(first)} against {len(second)} items"
        pairs = [(f"{path}[{i}]", one, other) for i, (one, other) in enumerate(zip(first, second, strict=True))]
    else:
        return None if _same(first, second) else f"{path or 'the value'}: {_shown(first)} against {_shown(second)}"
    return next((found for name, one, other in pairs if (found := difference(one, other, name)) is not None), None)


def layout(tree: Any) -> Any:
    """Return a tree of `dtype[row shape]` texts, one for each leaf: what a buffer is sized by."""

    def describe(leaf: Any) -> str:
        array = trees.as_numpy(leaf)
        return f"{array.dtype.name}{list(array.shape[1:])}"

    return trees.map_leaves(describe, tree)


def row_counts(tree: Any) -> dict[str, int | None]:
    """Return the number of rows of each leaf by its path, None for a leaf without a leading axis."""
    counts: dict[str, int | None] = {}

    def count(value: Any, path: str) -> None:
        if isinstance(value, dict):
            for key, part in value.items():
                count(part, f"{path}.{key}" if path else str(key))
        elif isinstance(value, list | tuple):
            for i, part in enumerate(value):
                count(part, f"{path}[{i}]")
        elif value is not None:
            shape = np.shape(value) if not trees.is_tensor(value) else tuple(value.shape)
            counts[path or "the state"] = int(shape[0]) if shape else None

    count(tree, "")
    return counts


def _same(first: Any, second: Any) -> bool:
    if first is None or second is None or isinstance(first, str) or isinstance(second, str):
        return bool(first == second)
    one, other = (trees.as_numpy(_widened(value)) for value in (first, second))
    if one.shape != other.shape or one.dtype.kind != other.dtype.kind:
        return False
    return bool(np.array_equal(one, other, equal_nan=one.dtype.kind in "fc"))


def _widened(value: Any) -> Any:
    """Return a tensor NumPy can hold: it knows no bfloat16."""
    return value.float() if trees.is_tensor(value) and value.is_floating_point() else value


def _shown(value: Any) -> str:
    shape = list(getattr(value, "shape", ()))
    return f"{type(value).__name__}{shape}" if shape else repr(value)
