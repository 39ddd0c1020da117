"""Measuring how good a policy is: it acts, nothing is learned, and whole episodes are counted without bias."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from plugrl_server.algorithm.base_algorithm import BaseAlgorithm
from plugrl_server.algorithm.evaluation.bootstrap import Estimate, estimate
from plugrl_server.algorithm.evaluation.evaluation_config import EvaluationConfig
from plugrl_server.algorithm.evaluation.shares import Episode, Ledger
from plugrl_server.algorithm.evaluation.trained_policy import find_trained_policy
from plugrl_server.algorithm.feedback_rows import Client, FeedbackRows, Node
from plugrl_server.algorithm.registration import register_algo
from plugrl_server.common.checkpoint_manager import Checkpoint
from plugrl_server.learning.episodes import is_finished_episode
from plugrl_server.policy.state import PolicyRuntimeState
from plugrl_server.record.results import Results

COLUMNS = ("index", "client", "env", "return", "length", "success", "seed")
FIGURES = {"return": "reward", "length": "length", "success": "success"}
"""Figure -> the field of an episode that it is taken over."""


@register_algo("eval")
class Evaluation(BaseAlgorithm):
    """Measures any policy.

    Attributes:
        ledger: The episodes so far.
    """

    on_policy = False
    config: EvaluationConfig

    def __init__(self, config: EvaluationConfig, policy: Any) -> None:
        super().__init__(config=config, policy=policy)
        self.ledger = Ledger(config.num_episodes)
        self.saved_episodes = 0
        self._nobody = Client()
        self._sums: dict[tuple[int, int], float] = {}
        if config.policy_checkpoint_path is not None:
            find_trained_policy(config.policy_checkpoint_path).load_into(policy)
        policy.deterministic = config.deterministic

    # Acting ------------------------------------------------------------------------------------------------------

    def infer(self, obs: dict[str, Any]) -> tuple[np.ndarray, PolicyRuntimeState]:
        """Ask the policy."""
        action, runtime_state = self.policy.get_action_and_runtime_state(obs)
        return action, runtime_state

    def note_client(self, client: Client) -> None:
        """Give a connection's environments their shares."""
        self.ledger.join(client)

    # Feedback ----------------------------------------------------------------------------------------------------

    def feedback(self, **frame: Any) -> tuple[Node, int, dict[str, Any]]:
        """Take one frame (arguments: `BaseAlgorithm.feedback`)."""
        rows = FeedbackRows.one(**frame)
        self.feedback_rows(rows)
        return rows.nodes[0], self.global_step, {}

    def feedback_rows(self, rows: FeedbackRows) -> int:
        """Take the rows of a message: sum their rewards, and note the episodes that end."""
        client = self.ledger.number(rows.client or self._nobody)
        envs = range(len(rows)) if rows.env_indices is None else rows.env_indices.tolist()
        done = rows.next_terminated | rows.next_truncated
        for i, env in enumerate(envs):
            self.global_step += 1
            rows.nodes[i] = (self.global_step, "eval")
            total = self._sums.get((client, env), 0.0) + float(rows.reward[i])
            self._sums[client, env] = 0.0 if done[i] else total
            if done[i] and is_finished_episode(rows.info[i]):
                self._note_episode(_episode(client, env, total, rows.info[i]), rows.info[i])
        return len(rows)

    def _note_episode(self, episode: Episode, info: dict[str, Any]) -> None:
        self.record_finished_episode(info, True, False)
        if math.isfinite(episode.reward):
            self.ledger.add(episode)

    # Results -----------------------------------------------------------------------------------------------------

    def results(self) -> Results | None:
        """Return the figures of the episodes that count; None where there are none."""
        counted = self.ledger.counted()
        if not counted:
            return None
        estimates = self._estimates(counted)
        metrics = {"eval/episodes": float(len(counted))}
        for name, figures in estimates.items():
            metrics |= {
                f"eval/{name}": figures.mean,
                f"eval/{name}_std": figures.std,
                f"eval/{name}_low": figures.low,
                f"eval/{name}_high": figures.high,
            }
        rows = [(index, *dataclasses.astuple(episode)) for index, episode in enumerate(counted)]
        return Results(self._lines(counted, estimates), metrics, COLUMNS, rows)

    def _estimates(self, counted: list[Episode]) -> dict[str, Estimate]:
        estimates = {}
        for name, field in FIGURES.items():
            known = [value for episode in counted if (value := getattr(episode, field)) is not None]
            if known:
                estimates[name] = estimate(np.array(known, np.float64), seed=self.config.bootstrap_seed)
        return estimates

    def _lines(self, counted: list[Episode], estimates: dict[str, Estimate]) -> list[str]:
        envs = len({(episode.client, episode.env) for episode in counted})
        manner = "without noise" if self.config.deterministic else "with noise"
        many = "s" if envs > 1 else ""
        lines = [
            f"evaluated {manner}: {len(counted)} episodes of {envs} environment{many}, mean +- std [95% of the mean]"
        ]
        for name, figures in estimates.items():
            lines.append(
                f"  {name:<7}  {figures.mean:.2f} +- {figures.std:.2f}  [{figures.low:.2f}, {figures.high:.2f}]"
            )
        if len(counted) < self.config.num_episodes:
            lines.append(
                f"  only {len(counted)} of {self.config.num_episodes} episodes: the run ended before every environment "
                f"had finished its share, so short episodes weigh too much"
            )
        return lines

    # Scheduling and state ----------------------------------------------------------------------------------------

    def learn_impl(self) -> tuple[int, dict[str, Any]]:
        """Learn nothing."""
        return self.global_step, {}

    def should_learn(self) -> bool:
        """Return False: an evaluation never learns."""
        return False

    def should_save(self) -> bool:
        """Return whether `save_interval` episodes have ended since the last checkpoint."""
        interval = self.config.save_interval
        return interval is not None and len(self.ledger.episodes) - self.saved_episodes >= interval

    def should_stop(self) -> bool:
        """Return whether every environment has finished its share, or `global_steps` frames have come."""
        steps = self.config.global_steps
        return self.ledger.is_complete() or (steps is not None and self.global_step >= steps)

    def create_checkpoint(self) -> Checkpoint:
        """Return the weights, unless the policy brings its own, and the episodes."""
        self.saved_episodes = len(self.ledger.episodes)
        model = None if self.config.policy_checkpoint_path is None else self.policy.state_dict()
        episodes = [dataclasses.asdict(episode) for episode in self.ledger.episodes]
        return Checkpoint(
            step=self.global_step, model=model, meta={"episodes": episodes, "rng": self.policy.rng_state()}
        )

    def load_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Restore the episodes; those that were open are lost, so their environments start theirs anew."""
        if checkpoint.model is not None:
            self.policy.load_state_dict(checkpoint.model)
        if checkpoint.meta["rng"] is not None:
            self.policy.load_rng_state(checkpoint.meta["rng"])
        self.ledger.restore([Episode(**episode) for episode in checkpoint.meta["episodes"]])
        self.global_step = checkpoint.step
        self.saved_episodes = len(self.ledger.episodes)


def _episode(client: int, env: int, summed: float, info: Mapping[str, Any]) -> Episode:
    """Return an episode by the client's own figures; where it sends none, the return is what its rewards add up to."""
    figures = info.get("episode")
    figures = figures if isinstance(figures, Mapping) else {}
    reward, length, success = (_number(figures.get(key)) for key in ("r", "l", "s"))
    return Episode(
        client=client,
        env=env,
        reward=summed if reward is None else reward,
        length=None if length is None else int(length),
        success=None if success is None else bool(success),
        seed=_integer(info.get("seed")),
    )


def _integer(value: Any) -> int | None:
    """Return an integer, or an array of exactly one, as it is (a float would round it); None for anything else."""
    if isinstance(value, np.ndarray) and value.size == 1:
        value = value.item()
    return int(value) if isinstance(value, int | np.integer) else None


def _number(value: Any) -> float | None:
    """Return a scalar of any kind, or an array of exactly one, as a float; None for anything else."""
    try:
        return float(np.asarray(value).item())
    except (TypeError, ValueError):
        return None
