"""Where a run's trainer comes from: built before the socket opens, from a checkpoint, or on the first declaration."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from plugrl_protocol.observation import Observation
from plugrl_protocol.spaces import Declaration

from plugrl_server import assembly
from plugrl_server.algorithm.registration import ALGORITHMS
from plugrl_server.assembly import CannotServe, Selection
from plugrl_server.common.checkpoint_manager import Checkpoint, CheckpointError, loading, misfit
from plugrl_server.common.torch_threads import use_threads
from plugrl_server.learners.team import Team
from plugrl_server.policy.registration import POLICIES
from plugrl_server.record.config_json import config_to_json
from plugrl_server.record.run_record import Part
from plugrl_server.training.symptoms.at_start import drifted_counters, duplicate_flags
from plugrl_server.training.trainer import Trainer

logger = logging.getLogger(__name__)

SMALL = 1_000_000
"""Networks with fewer parameters run on one thread: a second one costs more than it gains."""


class ResumeError(Exception):
    """A checkpoint does not fit the run that shall go on from it; the text names what changed."""


class Source:
    """Builds the trainer and keeps what the clients of the run agree on.

    Args:
        selection: Policy and algorithm.
        seed: Seed of Python, NumPy and Torch.
        torch_threads: Torch's threads; None to choose by the size of the network.
        save: Writes a checkpoint and returns its folder.
        on_declared: Told the first declaration and observation that the run was built for, once each is known.
        team: The other learners, where the run has any.

    Attributes:
        selection: The same, with every dimension filled once it is known.
        trainer: The trainer, once it is built.
    """

    def __init__(
        self,
        selection: Selection,
        *,
        seed: int,
        torch_threads: int | None,
        save: Callable[[Checkpoint], Path],
        on_declared: Callable[[Declaration | None, Observation], None],
        team: Team | None = None,
    ):
        self.selection = selection
        self.trainer: Trainer | None = None
        self._seed, self._torch_threads, self._save, self._on_declared = seed, torch_threads, save, on_declared
        self._team = team
        self._agreement: assembly.Agreement | None = None
        self._declared = False

    def check(self) -> None:
        """Checks names, pair and configurations; tells of built-ins replaced, and of flags that say the same twice.

        Raises:
            ConfigError: The selection cannot work, with advice.
            KeyError: A class is not registered; the notes name the missing import.
        """
        assembly.check(self.selection)
        for registry, uid in ((POLICIES, self.selection.policy_uid), (ALGORITHMS, self.selection.algo_uid)):
            if (told := registry.replacement(uid)) is not None:
                logger.info("%s", told)
        for text in duplicate_flags(self.selection.policy_config, self.selection.algo_config):
            logger.warning("%s", text)

    def build_early(self) -> None:
        """Builds the trainer now, where the flags or the policy's own defaults say every dimension."""
        if not assembly.missing(self.selection):
            self._assemble(self.selection, None)

    def build_from(
        self, checkpoint: Checkpoint, declaration: Declaration | None, observation: Observation | None
    ) -> None:
        """Builds the trainer and restores it.

        Args:
            checkpoint: The state to go on from.
            declaration: The spaces that the run's first client declared.
            observation: A row of the observations it sent.

        Raises:
            ResumeError: The checkpoint does not fit the policy or the algorithm.
        """
        try:
            selection = assembly.with_declaration(self.selection, declaration, observation)
        except CannotServe as error:
            raise ResumeError(str(error)) from None
        self._declared = declaration is not None
        self._assemble(selection, checkpoint)

    def build(self, declaration: Declaration | None, observation: Observation) -> Trainer:
        """Builds the trainer for the first client.

        Raises:
            CannotServe: The policy cannot act or see in that client's environments.
        """
        selection = assembly.with_declaration(self.selection, declaration, observation)
        trainer = self._assemble(selection, None)
        problem = self.disagreement(declaration, observation)
        if problem is not None:
            self.trainer = None
            raise CannotServe(problem)
        return trainer

    def disagreement(self, declaration: Declaration | None, observation: Observation) -> str | None:
        """Why a client does not fit this run, or None; the first that fits decides for those after it."""
        if self._agreement is None:
            return "the policy is not built yet"
        problem = self._agreement.admit(declaration, observation)
        if problem is None and declaration is not None and not self._declared:
            self._declared = True
            self._on_declared(declaration, observation)
        return problem

    def describe(self) -> dict[str, Any]:
        """What the metadata can say by now; what is unknown is absent."""
        policy = ALGORITHMS.get_class(self.selection.algo_uid), POLICIES.get_class(self.selection.policy_uid)
        known: dict[str, Any] = dict(zip(("algorithm", "policy"), (kind.__name__ for kind in policy), strict=True))
        if self.trainer is not None:
            built = self.trainer.policy
            if built.action_horizon:  # 0 where only the policy's first answer will tell
                known["action_horizon"] = int(built.action_horizon)
            if built.action_dim is not None:
                known["action_dim"] = int(built.action_dim)
        return known

    def parts(self) -> tuple[Part, Part]:
        """Policy and algorithm as `config.json` names them."""
        chosen = self.selection
        return (
            _part(
                chosen.policy_uid, chosen.policy_variant, POLICIES.get_class(chosen.policy_uid), chosen.policy_config
            ),
            _part(chosen.algo_uid, chosen.algo_variant, ALGORITHMS.get_class(chosen.algo_uid), chosen.algo_config),
        )

    def _assemble(self, selection: Selection, checkpoint: Checkpoint | None) -> Trainer:
        threads = use_threads(self._torch_threads or 1)
        algorithm = assembly.build(selection, seed=self._seed)
        if self._torch_threads is None and _parameters(algorithm.policy) >= SMALL:
            use_threads(threads)
        drift = None
        if checkpoint is not None:
            try:
                with loading(checkpoint):
                    algorithm.load_checkpoint(checkpoint)
                drift = drifted_counters(algorithm, checkpoint)
            except CheckpointError as error:
                raise ResumeError(str(error)) from error
            except Exception as error:  # an algorithm's own code meets a state it does not know
                raise ResumeError(
                    f"Checkpoint {checkpoint.step} does not fit: {type(error).__name__}: {misfit(error)}"
                ) from error
        if self._team is not None:
            self._team.build(selection, self._seed, algorithm)
        assembly.warm_up(algorithm)
        self.selection = selection
        self._agreement = assembly.Agreement(selection, algorithm.policy)
        self.trainer = Trainer(algorithm, save=self._save, on_learn=None)
        if drift is not None:
            self.trainer.symptoms.tell(drift)
        return self.trainer


def _part(uid: str, variant: str, kind: type, config: Any) -> Part:
    return Part(uid, variant, kind.__module__, kind.__qualname__, config_to_json(config))


def _parameters(policy: Any) -> int:
    return sum(weights.numel() for weights in policy.parameters()) if hasattr(policy, "parameters") else 0
