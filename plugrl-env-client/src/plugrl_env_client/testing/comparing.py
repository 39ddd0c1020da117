"""How the contract speaks: a broken clause is an AssertionError that says what was found and what to do."""

from typing import NoReturn
from unittest import SkipTest

import numpy as np
from plugrl_protocol.observation import Observation

from plugrl_env_client.envs.returned import fault


class ContractBroken(AssertionError):  # noqa: N818 - pytest and readers know it as a failed assertion
    """An environment does not keep a clause; the text names the clause and both sides."""


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


def arrays(observation: Observation) -> dict[str, np.ndarray]:
    """The arrays of an observation by `images.<name>`, `states.<name>` and `text`.

    Raises:
        ContractBroken: It is none, or an entry is no array of the dtype and shape that can be sent.
    """
    found = fault(observation)
    expect(found is None, f"what an env shows cannot be sent: {found}.")
    named = {f"images.{name}": image for name, image in observation.images.items()}
    named |= {f"states.{name}": state for name, state in observation.states.items()}
    return {**named, "text": observation.text}


def copied(observation: Observation) -> Observation:
    """The same observation in memory of its own; raises as `arrays`."""
    arrays(observation)
    return observation.take(np.arange(len(observation)))


def layout(observation: Observation) -> dict[str, str]:
    """`dtype[row shape]` of every array; texts are text, whatever their length."""
    return {
        name: "text" if array.dtype.kind == "U" else f"{array.dtype.name}{list(array.shape[1:])}"
        for name, array in arrays(observation).items()
    }


def difference(first: Observation, second: Observation) -> str | None:
    """Where two observations of the same rows differ first, None where they are equal. NaN equals NaN."""
    one, other = arrays(first), arrays(second)
    if one.keys() != other.keys():
        return f"entries {sorted(one)} against {sorted(other)}"
    for name, array in one.items():
        if array.shape != other[name].shape:
            return f"{name}: shape {list(array.shape)} against {list(other[name].shape)}"
        unequal = array != other[name]
        if array.dtype.kind == "f":
            unequal &= ~(np.isnan(array) & np.isnan(other[name]))
        if unequal.any():
            at = tuple(np.argwhere(unequal)[0])
            return f"{name}{list(map(int, at))}: {array[at]} against {other[name][at]}"
    return None


def row_difference(first: Observation, row: int, second: Observation, other: int) -> str | None:
    """Where row `row` of one observation differs from row `other` of another."""
    return difference(first.take([row]), second.take([other]))
