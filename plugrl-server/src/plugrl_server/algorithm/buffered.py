"""The base of algorithms that store frames in a buffer, all rows of a message with one call."""

import abc
from typing import Any

import numpy as np

from plugrl_server.algorithm.distributed import DDPAlgorithm
from plugrl_server.algorithm.feedback_rows import FeedbackRows, Node
from plugrl_server.learning.trees import Tree
from plugrl_server.policy.state import PolicyRuntimeState, PolicyTrainState


class BufferedAlgorithm(DDPAlgorithm):
    """An algorithm that writes `_add`, the call of its buffer.

    The policy has `observe`, which tells what of an observation is stored; its runtime state has a `sample`.
    """

    def derive_train_state(self, runtime_state: PolicyRuntimeState) -> PolicyTrainState:
        """Keep the sample: the chunk in the units that the policy learns in."""
        return runtime_state["sample"]

    def feedback(self, **frame: Any) -> tuple[Node, int, dict[str, Any]]:
        """Store one frame (arguments: `BaseAlgorithm.feedback`)."""
        rows = FeedbackRows.one(**frame)
        self._store(rows)
        return rows.nodes[0], self.global_step, {}

    def feedback_rows(self, rows: FeedbackRows) -> int:
        """Store the rows of a message, all of them."""
        self._store(rows)
        return len(rows)

    def _store(self, rows: FeedbackRows) -> None:
        """Store rows and write their nodes into them, count them, and record the episodes that they end."""
        rows.nodes[:] = self._add(
            rows.train_state,
            obs=self.policy.observe(rows.obs),
            next_obs=self.policy.observe(rows.next_obs),
            reward=rows.reward,
            terminated=rows.next_terminated,
            truncated=rows.next_truncated,
            nodes=rows.nodes,
        )
        self.global_step += len(rows)
        for i in np.flatnonzero(rows.next_terminated | rows.next_truncated).tolist():
            self.record_finished_episode(rows.info[i], True, True)

    @abc.abstractmethod
    def _add(self, train_state: PolicyTrainState, **frames: Tree) -> list[Node]:
        """Hand frames to the buffer's `add`, and return the nodes that it gave them."""
