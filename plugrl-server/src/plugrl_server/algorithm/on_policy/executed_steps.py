"""How many actions of a chunk were run: losses over chunks count no others."""

from typing import Any

import numpy as np

from plugrl_server.algorithm.feedback_rows import FeedbackRows
from plugrl_server.learning.episodes import is_finished_episode


def executed_of(rows: FeedbackRows, executed_steps: int) -> np.ndarray:
    """Return how many actions of each row's chunk were run, i8[m]: `executed_steps`, or less where an episode ended."""
    executed = np.full(len(rows), executed_steps)
    for i in np.flatnonzero(rows.next_terminated | rows.next_truncated).tolist():
        executed[i] = steps_before_the_end(rows.info[i], executed_steps)
    return executed


def steps_before_the_end(info: dict[str, Any], executed_steps: int) -> int:
    """Return how many actions of its last chunk an episode ran: what its length leaves over whole chunks.

    All of `executed_steps` where the length is not known, or is not that of the whole episode.
    """
    length = info.get("episode", {}).get("l")
    if length is None or not is_finished_episode(info):
        return executed_steps
    return (int(np.asarray(length).item()) - 1) % executed_steps + 1
