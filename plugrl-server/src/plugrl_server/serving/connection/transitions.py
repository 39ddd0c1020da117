"""A feedback joined with what its actions were chosen from: the transitions that an algorithm stores."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from plugrl_protocol.messages import Feedback

from plugrl_server.algorithm.feedback_rows import NO_NODE, Client, FeedbackRows, Node
from plugrl_server.learning import trees
from plugrl_server.serving.connection.env_memory import EnvMemory
from plugrl_server.training.accounting import Discard
from plugrl_server.training.trainer import Trainer


@dataclasses.dataclass(slots=True, eq=False)
class Transitions:
    """The m rows of a feedback, of which k envs held a step state.

    Attributes:
        feedback: The message.
        held: Which rows' envs held a step state, b1[m]; None where all did. The others answer no action of this
            connection: duplicates, replays, envs never asked about (SPEC 7.6, lesson 4).
        rows: The k transitions, in the order of the message.
        versions: The policy versions that acted, i8[k], or one for all.
        finite: Which of the k rows have only finite numbers, b1[k]; None where all have.
    """

    feedback: Feedback
    held: np.ndarray | None
    rows: FeedbackRows
    versions: np.ndarray | int
    finite: np.ndarray | None

    def strangers(self) -> list[int]:
        """Return the rows whose envs held no step state."""
        return [] if self.held is None else np.flatnonzero(~self.held).tolist()

    def record(self, trainer: Trainer) -> dict[Discard, int]:
        """Record them, hand the rows without a step state to `discard_feedback`, and return what was lost."""
        discarded = trainer.record(self.rows, self.versions, self.finite) if len(self.rows) else {}
        strangers = self.strangers()
        if strangers:
            info, ended = self.feedback.info_rows(), (self.feedback.terminated, self.feedback.truncated)
            trainer.discard([info[row] for row in strangers], *(flags[strangers] for flags in ended))
            discarded = {**discarded, Discard.NO_STEP_STATE: len(strangers)}
        return discarded

    def all_nodes(self) -> list[Node]:
        """Return the m nodes of the envs' frames, `NO_NODE` where there was no step state."""
        if self.held is None:
            return self.rows.nodes
        nodes = iter(self.rows.nodes)
        return [next(nodes) if held else NO_NODE for held in self.held]


def join(
    feedback: Feedback,
    next_obs: dict[str, Any],
    finite: np.ndarray | None,
    memory: EnvMemory,
    client: Client | None = None,
) -> Transitions:
    """Join a feedback with its envs' step states, which the memory then forgets.

    Args:
        feedback: m rows.
        next_obs: Its observations as the policy reads them, a tree of leading m.
        finite: Which rows have only finite numbers, b1[m]; None where all have.
        memory: The connection's.
        client: The connection, for the algorithm.
    """
    steps = memory.take(feedback.env_indices)
    held = steps.held
    reward, terminated, truncated = feedback.rewards, feedback.terminated, feedback.truncated
    info: Any = feedback.info_rows()
    env_indices = feedback.env_indices
    if held is not None:
        next_obs, finite = trees.take(next_obs, held), None if finite is None else finite[held]
        reward, terminated, truncated = reward[held], terminated[held], truncated[held]
        info = [info[row] for row in np.flatnonzero(held).tolist()]
        env_indices = env_indices[held]
    rows = FeedbackRows(
        obs=steps.obs,
        runtime_state=steps.runtime_state,
        train_state=steps.train_state,
        terminated=steps.terminated,
        truncated=steps.truncated,
        next_obs=next_obs,
        reward=reward,
        info=info,
        next_terminated=terminated,
        next_truncated=truncated,
        nodes=steps.nodes,
        client=client,
        env_indices=env_indices,
    )
    return Transitions(feedback, held, rows, steps.versions, finite)
