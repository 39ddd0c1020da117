"""A run without a server: the real `Trainer`, a `TinyEnv`, and a note of everything that happens."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from plugrl_server.algorithm.base_algorithm import NO_NODE, BaseAlgorithm, FeedbackRows, Node
from plugrl_server.common.checkpoint_manager import Checkpoint, CheckpointManager
from plugrl_server.testing.tiny_env import Observation, TinyEnv
from plugrl_server.training.accounting import Discard
from plugrl_server.training.trainer import Inference, Trainer

LEARNS_IN_A_ROW = 64
"""Learn steps without an inference after which a rehearsal goes on acting."""


@dataclasses.dataclass
class Asked:
    """Actions on their way: the observation they answer and what the server keeps of them."""

    obs: Observation
    inference: Inference


class Rehearsal:
    """Drives an algorithm as the server does: infer, record, then save and learn for as long as it asks.

    Args:
        algorithm: Built, with its optimizers.
        env: The environment.
        folder: Where `through_disk` writes; saves that the algorithm asks for are only noted.

    Attributes:
        trainer: The server's own.
        learned_at: Global step of each learn step.
        saved_at: Global step of each save that the algorithm asked for.
        metrics: Metrics of each learn step.
        saved_in_vain: Whether it asked for a checkpoint right after one.
        longest_row: Most learn steps there were without an inference between them.
        exchanges: Exchanges so far.
    """

    def __init__(self, algorithm: BaseAlgorithm, env: TinyEnv, folder: Path) -> None:
        self.algorithm, self.env = algorithm, env
        self.manager = CheckpointManager(folder)
        self.trainer = Trainer(algorithm, save=lambda checkpoint: folder / str(checkpoint.step))  # disks are slow
        self.learned_at: list[int] = []
        self.saved_at: list[int] = []
        self.metrics: list[dict[str, Any]] = []
        self.saved_in_vain = False
        self.longest_row = self.exchanges = 0
        self._nodes: list[Node] = [NO_NODE] * env.num_envs

    # One exchange ------------------------------------------------------------------------------------------------

    def ask(self) -> Asked:
        """Infer actions for the present observation."""
        obs = self.env.obs
        return Asked(obs, self.trainer.infer(obs, self.env.num_envs))

    def answer(self, asked: Asked) -> dict[Discard, int]:
        """Run the actions and record what came of them; returns how many rows were discarded, by reason."""
        rows = self.rows(asked)
        discarded = self.trainer.record(rows, asked.inference.version)
        self._nodes = list(rows.nodes)
        self.exchanges += 1
        return discarded

    def rows(self, asked: Asked) -> FeedbackRows:
        """Run the actions, and return the transitions as the algorithm is offered them."""
        (terminated, truncated), inference = self.env.started, asked.inference
        outcome = self.env.step(inference.action)
        return FeedbackRows(
            obs=asked.obs,
            runtime_state=inference.runtime_state,
            train_state=inference.train_state,
            terminated=terminated,
            truncated=truncated,
            next_obs=outcome.next_obs,
            reward=outcome.reward,
            info=outcome.info,
            next_terminated=outcome.terminated,
            next_truncated=outcome.truncated,
            nodes=list(self._nodes),
        )

    # Turns -------------------------------------------------------------------------------------------------------

    def exchange(self) -> None:
        """Take one exchange and the turns after it."""
        self.answer(self.ask())
        self.turn()

    def turn(self) -> None:
        """Save and learn for as long as the algorithm asks, `LEARNS_IN_A_ROW` learn steps at most."""
        self._save_if_asked()
        row = 0
        while row < LEARNS_IN_A_ROW and self.trainer.should_learn():
            row += 1
            self.learn()
            self._save_if_asked()
        self.longest_row = max(self.longest_row, row)

    def learn(self) -> None:
        """Take one learn step."""
        global_step, metrics = self.trainer.learn()
        self.learned_at.append(global_step)
        self.metrics.append(metrics)

    def until(self, done: Callable[[], bool], exchanges: int) -> bool:
        """Take exchanges until something is the case, so many at most; False when it never was."""
        for _ in range(exchanges):
            if done():
                return True
            self.exchange()
        return done()

    def through_disk(self) -> Checkpoint:
        """Write a checkpoint of this moment and return it as it is read back."""
        self.manager.save(self.algorithm.create_checkpoint())
        return self.manager.load()

    def _save_if_asked(self) -> None:
        if self.trainer.should_save():
            self.saved_at.append(self.trainer.global_step)
            self.trainer.save()
            self.saved_in_vain |= self.trainer.should_save()
