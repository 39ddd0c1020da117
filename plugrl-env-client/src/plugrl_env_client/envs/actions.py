"""How actions from the wire become actions of an environment (field lesson 17).

A chunk is checked and converted once, when it arrives, for all its steps and rows:

- NaN and infinite values are refused, whatever the space.
- Box: the shape must fit, values are clipped to the bounds and cast to the space's dtype (rounded first where that is
  an integer). Nothing is scaled: a server knows the bounds from the declaration.
- Discrete: `[H, n]` and `[H, n, 1]` are accepted, values must be whole numbers in `start .. start + n - 1`.
- MultiDiscrete, MultiBinary: the shape must fit, values must be whole numbers in range.
- No declared space: values pass as they are.
"""

import abc

import numpy as np
from plugrl_protocol.spaces import ActionSpace, BoxSpace, DiscreteSpace, MultiBinarySpace, MultiDiscreteSpace


class ActionError(ValueError):
    """The server's actions do not fit the environment: the text names both."""


class ActionRule(abc.ABC):
    """Turns a chunk from the wire into one that an env may run."""

    def prepare(self, chunk: np.ndarray) -> np.ndarray:
        """Check and convert a chunk.

        Args:
            chunk: [H, n, *da] as received.

        Returns:
            [H, n, *shape of the space] in the space's dtype.

        Raises:
            ActionError: values or shape that the env cannot take.
        """
        kind = chunk.dtype.kind
        if kind not in "biuf":
            raise ActionError(f"the server sent actions of dtype {chunk.dtype}, expected numbers")
        if kind == "f" and b"\0" in np.isfinite(chunk).tobytes():  # quicker than NumPy's all
            bad = np.argwhere(~np.isfinite(chunk))[0]
            raise ActionError(
                f"the server sent a NaN or infinite action (step {bad[0]}, row {bad[1]}): it is not given to the env"
            )
        return self._convert(chunk)

    @abc.abstractmethod
    def _convert(self, chunk: np.ndarray) -> np.ndarray: ...


def action_rule(space: ActionSpace | None, env_id: str) -> ActionRule:
    """The rule for a declared space; None stands for an env that takes any action."""
    if space is None:
        return _AnyRule()
    if isinstance(space, BoxSpace):
        return _BoxRule(space, env_id)
    if isinstance(space, DiscreteSpace):
        return _WholeRule(space, env_id, low=space.start, high=space.start + space.n - 1)
    if isinstance(space, MultiDiscreteSpace):
        return _WholeRule(space, env_id, low=0, high=np.asarray(space.nvec) - 1)
    if isinstance(space, MultiBinarySpace):
        return _WholeRule(space, env_id, low=0, high=1)
    raise ActionError(f"{env_id} declares an action space of unknown kind: {space!r}")


def takes_zeros(space: ActionSpace | None) -> bool:
    """Whether an action of nothing but zeros may stand for "do nothing": not in a space of numbered actions."""
    if space is None:
        return True
    return isinstance(space, BoxSpace) and bool(
        (np.asarray(space.low) <= 0).all() and (np.asarray(space.high) >= 0).all()
    )


class _AnyRule(ActionRule):
    def _convert(self, chunk: np.ndarray) -> np.ndarray:
        return chunk


class _ShapedRule(ActionRule):
    def __init__(self, space: ActionSpace, env_id: str) -> None:
        self._space = space
        self._env_id = env_id
        self._shape = tuple(space.shape)
        self._dtype = np.dtype(space.dtype)

    def _shaped(self, chunk: np.ndarray) -> np.ndarray:
        shape = chunk.shape[2:]
        if shape == self._shape:
            return chunk
        if self._shape == () and shape == (1,):
            return chunk[..., 0]
        raise ActionError(
            f"the server sends actions of shape {shape}, {self._env_id} takes {self._space} of shape {self._shape}"
        )


class _BoxRule(_ShapedRule):
    def __init__(self, space: BoxSpace, env_id: str) -> None:
        super().__init__(space, env_id)
        self._low = self._lows = np.asarray(space.low, self._dtype)
        self._high = self._highs = np.asarray(space.high, self._dtype)
        self._usual: tuple[int, ...] | None = None  # the shape of the chunk that _lows and _highs were made for
        self._whole = self._dtype.kind in "iu"

    def _convert(self, chunk: np.ndarray) -> np.ndarray:
        shaped = chunk if chunk.shape == self._usual else self._shaped(chunk)
        if self._lows.shape != shaped.shape:  # NumPy takes three times as long where it has to broadcast
            self._lows = np.broadcast_to(self._low, shaped.shape).copy()
            self._highs = np.broadcast_to(self._high, shaped.shape).copy()
            self._usual = shaped.shape
        # Clip first where the wire's dtype is the wider one: a cast could wrap or overflow what the bounds would hold.
        clipped: np.ndarray = np.minimum(np.maximum(shaped, self._lows), self._highs)
        if self._whole and clipped.dtype.kind == "f":
            clipped = np.rint(clipped)
        return clipped if clipped.dtype is self._dtype else clipped.astype(self._dtype)


class _WholeRule(_ShapedRule):
    def __init__(self, space: ActionSpace, env_id: str, *, low: int, high: "int | np.ndarray") -> None:
        super().__init__(space, env_id)
        self._low = low
        self._high = high

    def _convert(self, chunk: np.ndarray) -> np.ndarray:
        shaped = self._shaped(chunk)
        whole = shaped.astype(np.int64)
        if shaped.dtype.kind == "f" and not (whole == shaped).all():
            raise ActionError(f"the server sends fractional actions, {self._env_id} takes {self._space}")
        if ((whole < self._low) | (whole > self._high)).any():
            raise ActionError(f"the server sends the action {self._outside(whole)}, {self._env_id} takes {self._space}")
        return whole.astype(self._dtype, copy=False)

    def _outside(self, whole: np.ndarray) -> int:
        return int(whole[(whole < self._low) | (whole > self._high)][0])
