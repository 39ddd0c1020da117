"""Advantages and returns over [T, E] arrays: T steps of E columns, each column one or more chains end to end."""

import numpy as np


def gae(
    rewards: np.ndarray,
    values: np.ndarray,
    next_values: np.ndarray,
    terminated: np.ndarray,
    cut: np.ndarray,
    gamma: float,
    gae_lambda: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Return generalised advantages and their returns (Schulman et al. 2016, eqs. 11 and 16).

    Every flag is the frame's own: `terminated[t]` says that this frame's next state has no value, `cut[t]` that the
    row below does not continue this one (it terminated, was truncated, or the buffer ended there). A frame that is cut
    without being terminated bootstraps with its `next_values`, the value of its own final observation.

    Args:
        rewards: Reward of each frame, f4[T, E].
        values: V(obs), f4[T, E].
        next_values: V(next_obs), f4[T, E]; not read where `terminated`.
        terminated: b1[T, E].
        cut: b1[T, E]; must be true wherever `terminated` is. The last row is cut whatever it says.
        gamma: Discount of one frame (an action chunk).
        gae_lambda: The lambda of TD(lambda).

    Returns:
        Advantages and returns (advantages + values), f4[T, E].
    """
    advantages = rewards + np.float32(gamma) * np.where(terminated, np.float32(0), next_values) - values
    decay = np.where(cut, np.float32(0), np.float32(gamma * gae_lambda))
    _scan(advantages[::-1], decay[-2::-1])
    return advantages, advantages + values


def discounted_sums(rewards: np.ndarray, cut: np.ndarray, before: np.ndarray, gamma: float) -> np.ndarray:
    """Return the running discounted sum of past rewards after each frame: what reward scaling takes the spread of.

    It restarts at every episode start: the row after a cut takes nothing over from the row above.

    Args:
        rewards: Reward of each frame, f4[T, E].
        cut: Whether the row below does not continue this one, b1[T, E].
        before: What each frame takes over from before this array (0 at an episode start), f4[T, E]; not zero only on
            the first frame of a chain.
        gamma: Discount of one frame.

    Returns:
        f4[T, E].
    """
    sums = rewards + np.float32(gamma) * before
    decay = np.where(cut, np.float32(0), np.float32(gamma))
    _scan(sums, decay[:-1])
    return sums


def _scan(rows: np.ndarray, decay: np.ndarray) -> None:
    """Add to each row [E] of `rows`, in place and in order, the row before it times the decay between the two."""
    if len(rows) == 0:
        return
    carried = np.empty_like(rows[0])
    before = rows[0]
    for row, weight in zip(rows[1:], decay, strict=True):
        np.multiply(weight, before, out=carried)
        np.add(row, carried, out=row)
        before = row
