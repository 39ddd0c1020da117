"""A run from a checked command line to its exit code: build, listen, serve, stop, report."""

from __future__ import annotations

import asyncio
import os
import random
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from plugrl_protocol.observation import Observation
from plugrl_protocol.spaces import Declaration
from rich.console import Console

from plugrl_server import assembly
from plugrl_server.assembly import Selection
from plugrl_server.children.child import Child
from plugrl_server.children.command import client_hint
from plugrl_server.children.supervisor import Supervisor
from plugrl_server.common.checkpoint_manager import Checkpoint, CheckpointError, CheckpointManager
from plugrl_server.interrupts import INTERRUPTED, Interrupts
from plugrl_server.learners.team import Team
from plugrl_server.record.config_changes import changes, run_changes
from plugrl_server.record.config_json import config_to_json
from plugrl_server.record.logs import logging_to
from plugrl_server.record.results import Results
from plugrl_server.record.run_record import RunRecord, versions
from plugrl_server.record.summary import Closing, configuration, resume_command
from plugrl_server.run_config import RunConfig, UsageError
from plugrl_server.selecting import Command
from plugrl_server.serving.interface import RunResult, ServingOptions
from plugrl_server.serving.server import TrainingServer
from plugrl_server.source import ResumeError, Source
from plugrl_server.training.learning_curve import draw
from plugrl_server.training.metrics import MetricsFile, read_rows
from plugrl_server.training.progress import SAVING, STOPPING, Progress
from plugrl_server.training.reporter import Reporter
from plugrl_server.training.run_folder import FolderError, RunFolder
from plugrl_server.training.trackers import Trackers, opened_trackers, preload

FAILED = 1
CLIENTS_FINISHED = "clients finished"


class StartError(Exception):
    """The run cannot start; the text says why."""


def start(
    config: RunConfig,
    selection: Selection,
    folder: RunFolder,
    command: Command,
    record: RunRecord | None,
    team: Team | None = None,
) -> int:
    """Runs to the end and returns the exit code.

    Args:
        config: Flags of the run, checked.
        selection: Policy and algorithm with their configurations.
        folder: The run folder, free to use.
        command: The command line, without the API key.
        record: The run to go on with, or None.
        team: The other learners, where the run has any.
    """
    console = Console()
    live = config.show_progress_bar and console.is_terminal
    with logging_to(console, config.log_level, live=live):
        _say(console, shown(config, selection))
        try:
            run = Run(config, selection, folder, command, record, console, live=live, team=team)
            run.build()
            code = asyncio.run(run.serve())
        except KeyError as error:
            sys.stderr.write("\n".join([f"KeyError: {error}", *getattr(error, "__notes__", [])]) + "\n")
            return FAILED
        except (StartError, FolderError, ResumeError, CheckpointError) as error:
            sys.stderr.write(f"error: {error}\n")
            return FAILED
    _leave_if_stuck(code)
    return code


def shown(config: RunConfig, selection: Selection) -> str:
    """The whole configuration as text."""
    policy, algorithm = config_to_json(selection.policy_config), config_to_json(selection.algo_config)
    return "\n".join(
        [
            configuration(f"policy {selection.policy_uid} {selection.policy_variant}", policy),
            configuration(f"algorithm {selection.algo_uid} {selection.algo_variant}", algorithm),
            configuration("run", config.public()),
        ]
    )


class Run:
    """One run.

    Args:
        config: Flags of the run, checked.
        selection: Policy and algorithm with their configurations.
        folder: The run folder, free to use.
        command: The command line, without the API key.
        record: The run to go on with, or None.
        console: Where to print.
        live: Whether to draw a live panel.
        team: The other learners, where the run has any.
    """

    def __init__(
        self,
        config: RunConfig,
        selection: Selection,
        folder: RunFolder,
        command: Command,
        record: RunRecord | None,
        console: Console,
        *,
        live: bool,
        team: Team | None = None,
    ):
        self._config, self._folder, self._command, self._resumed = config, folder, command, record
        self._console, self._live = console, live
        self._name = folder.path.name
        self._seed = _seed(config, record)
        self._checkpoints = CheckpointManager(folder.checkpoints, config.keep_checkpoints)
        self._source = Source(
            selection,
            seed=self._seed,
            torch_threads=config.torch_threads,
            save=self._save,
            on_declared=self._declared,
            team=team,
        )
        self._total: int | None = getattr(selection.algo_config, "global_steps", None)
        self._declaration: Declaration | None = record.declaration if record else None
        self._observation: Observation | None = record.observation if record else None
        self._interrupts = Interrupts(self._stop, self._stop_now)
        self._listened, self._first_step, self._seconds = False, 0, 0.0
        self._result: RunResult | None = None
        self._results: Results | None = None

    # Before the socket opens -------------------------------------------------------------------------------------

    def build(self) -> None:
        """Checks the selection and builds what can be built before a client comes.

        Raises:
            KeyError: A class is not registered; the notes name the missing import.
            ConfigError: The selection cannot work.
            ResumeError: The checkpoint does not fit; UsageError where flags were changed.
            CheckpointError: The checkpoint is damaged.
            StartError: There is nothing left to do.
        """
        self._source.check()
        preload()
        if self._resumed is None:
            self._source.build_early()
        else:
            self._restore(self._resumed)

    def _restore(self, record: RunRecord) -> None:
        selection = self._source.selection
        changed = changes(record.policy, selection.policy_config, "policy")
        changed += changes(record.algorithm, selection.algo_config, "algo")
        if all_changed := changed + run_changes(record.run, self._config.kept()):
            _say(self._console, "changed since the run was saved: " + ", ".join(all_changed))
        checkpoint = self._checkpoints.load()
        try:
            self._source.build_from(checkpoint, record.declaration, record.observation)
        except ResumeError as error:
            changed_flags = f"changed flags: {', '.join(changed) or 'none'}"
            raise (UsageError if changed else ResumeError)(f"{error}\n{changed_flags}") from error
        trainer = self._source.trainer
        if trainer is None or trainer.should_stop():
            raise StartError(
                f"nothing left to do: {self._folder.path} stands at step {checkpoint.step}; raise --algo.global-steps"
            )
        self._first_step = checkpoint.step
        _say(self._console, f"resuming at step {checkpoint.step:,}")

    # Serving -----------------------------------------------------------------------------------------------------

    async def serve(self) -> int:
        """Serves until the run ends and returns the exit code.

        Raises:
            StartError: The address cannot be listened on.
            FolderError: The run folder cannot be used after all.
        """
        self._events = Reporter(self._progress(), self._listening, lambda: self._children.connections_changed())
        self._server = TrainingServer(self._source, self._options(), self._events)
        self._children = Supervisor(
            self._config.client,
            logs=self._folder.client_logs,
            api_key=self._config.api_key,
            connections=lambda: self._server.connection_count,
            on_failed=lambda: self._server.request_stop("clients failed", exit_code=FAILED),
            on_finished=lambda: self._server.request_stop(CLIENTS_FINISHED),
            # Where another learner has failed, all must be over before torchrun kills this process, after 30 s.
            patience=30.0 if self._config.learners == 1 else 10.0,
        )
        beat = asyncio.get_running_loop().create_task(self._beat())
        try:
            with self._interrupts.handled():  # until all is said: a late signal must not cost the report
                result, failed = await self._serve()
                return self._close(result, failed)
        finally:
            beat.cancel()
            self._folder.close()

    async def _serve(self) -> tuple[RunResult, list[Child]]:
        """Serves, then sees the clients off; returns how the run ended and the clients that failed."""
        try:
            self._result = await self._server.run()
            self._seconds = self._events.progress.busy
            self._conclude()
            self._events.progress.enter(STOPPING)
            # On 1011 a client goes on trying to reconnect: there is nothing to wait for.
            return self._result, await self._children.finish(at_once=self._result.reason == "failed")
        finally:
            self._children.hurry()
            await self._children.finish()
            self._events.close()

    def _conclude(self) -> None:
        """Keeps what the run measured: a row of metrics, and `episodes.csv`."""
        trainer = self._source.trainer
        self._results = None if trainer is None else trainer.algorithm.results()
        if trainer is not None and self._results is not None:
            self._events.concluded(trainer.global_step, self._results.metrics)
            self._results.write(self._folder.path)

    def _save(self, checkpoint: Checkpoint) -> Path:
        progress = self._events.progress
        before, progress.phase = progress.phase, SAVING
        try:
            return self._checkpoints.save(checkpoint)
        finally:
            progress.phase = before

    def _options(self) -> ServingOptions:
        config = self._config
        return ServingOptions(
            host=config.host,
            port=config.port,
            api_key=config.api_key,
            max_frame=max(1, int(config.max_frame_mib * 2**20)),
            mini_infer_batch_size=config.mini_infer_batch_size,
            infer_wait_ms=config.infer_wait_ms,
            feedback_wait_timeout=config.feedback_wait_timeout,
            metadata=config.metadata_items,
            deterministic=config.deterministic,
            spin_us=None if config.spin_us == "auto" else config.spin_us,
        )

    async def _beat(self) -> None:
        """Lets the progress speak while nothing happens, as in a long learn step."""
        while True:
            await asyncio.sleep(1.0)
            self._events.progress.tick()

    def _progress(self) -> Progress:
        return Progress(
            self._console,
            title=self._name,
            total=self._total,
            step=self._first_step,
            live=self._live,
            metric_table=self._config.show_metric_table,
            figures=self._figures,
        )

    def _figures(self) -> tuple[int, Mapping[str, float]]:
        trainer = self._source.trainer
        return (0, {}) if trainer is None else (trainer.finished_episodes, trainer.algorithm.episodes.metrics())

    def _listening(self, host: str, port: int) -> None:
        self._listened = True
        self._folder.open(self._record(), resume=self._resumed is not None)
        last_step = None if self._resumed is None else self._first_step
        rows = MetricsFile(self._folder.metrics, last_step=last_step)
        curves = opened_trackers(
            self._config.track, self._name, self._record().to_json(), self._folder.path, last_step=last_step
        )
        self._events.attach(Trackers([rows]), Trackers(curves))
        _say(self._console, f"run folder: {self._folder.path}\nlistening on {host} port {port}")
        self._children.start(host, port)
        if not self._config.client:
            _say(self._console, client_hint(host, port))
        if self._source.trainer is None:
            _say(self._console, self._declaration_hint())
        self._events.progress.start()

    def _declared(self, declaration: Declaration | None, observation: Observation) -> None:
        self._declaration, self._observation = declaration, observation.take([0])
        self._folder.write_record(self._record())

    def _record(self) -> RunRecord:
        policy, algorithm = self._source.parts()
        return RunRecord(
            policy=policy,
            algorithm=algorithm,
            run=self._config.public(),
            seed=self._seed,
            versions=versions(),
            command=[*self._command.program, *self._command.words],
            declaration=self._declaration,
            observation=self._observation,
        )

    def _declaration_hint(self) -> str:
        flags = (f"--policy.{name.replace('_', '-')}" for name in assembly.missing(self._source.selection))
        return f"the first client that declares its spaces sizes the policy; for one that does not: {' '.join(flags)}"

    # Stopping ----------------------------------------------------------------------------------------------------

    def _stop(self, signal_name: str) -> bool:
        """Begins a clean stop, unless the run has ended already."""
        if self._result is not None:
            return False
        self._events.progress.say(f"{signal_name}: stopping cleanly with a checkpoint; once more stops at once")
        self._server.request_stop("interrupted")
        return True

    def _stop_now(self, signal_name: str) -> None:
        self._events.progress.say(f"{signal_name}: stopping at once")
        self._children.hurry()
        self._server.stop_now()

    def _close(self, result: RunResult, failed: Sequence[Child]) -> int:
        if not self._listened:
            hint = "; --port 0 takes any free port" if "in use" in str(result.error) else ""
            raise StartError(f"{result.error}{hint}")
        rows = list(read_rows(self._folder.metrics))
        stopped_now = self._interrupts.count > 1 and result.reason == "interrupted"
        if self._results is not None:
            _say(self._console, "\n".join([*self._results.lines, f"episodes: {self._folder.episodes}"]))
        elif not stopped_now:
            _say(self._console, draw(rows, self._folder.learning_curve, self._name))
        closing = Closing(
            reason=self._reason(result),
            error=result.error,
            step=result.global_step,
            seconds=self._seconds,
            steps_done=result.global_step - self._first_step,
            accounting=result.accounting.table(),
            folder=self._folder.path,
            saved=result.saved,
            rows=rows,
            resume=self._resume_command(),
        )
        _say(self._console, closing.text())
        for child in failed:
            sys.stderr.write(f"error: {self._children.report(child)}\n")
        if stopped_now:
            return INTERRUPTED
        return result.exit_code or (FAILED if failed else 0)

    def _resume_command(self) -> list[str]:
        config, chosen = self._config, self._source.selection
        names = (chosen.policy_uid, chosen.policy_variant, chosen.algo_uid, chosen.algo_variant)
        program = [*self._command.program, *names]
        return resume_command(program, self._name, config.checkpoint_base_dir, config.said_anew())

    def _reason(self, result: RunResult) -> str:
        if result.reason != CLIENTS_FINISHED:
            return result.reason
        total = "" if self._total is None else f" of {self._total}"
        return f"{CLIENTS_FINISHED} at step {result.global_step}{total}"


def _seed(config: RunConfig, record: RunRecord | None) -> int:
    if record is None:
        return config.seed if config.seed is not None else random.SystemRandom().randrange(2**31)
    if config.seed not in (None, record.seed):
        raise UsageError(
            f"--seed {config.seed} contradicts the run's seed {record.seed}: a resumed run goes on with its saved "
            f"random state; leave --seed out"
        )
    return record.seed


def _say(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def _leave_if_stuck(code: int) -> None:
    """Ends the process when a call of the algorithm is still running: waiting for it could take for ever."""
    stuck = [thread for thread in threading.enumerate() if thread.name.startswith("plugrl-")]
    for thread in stuck:
        thread.join(timeout=0.5)
    if any(thread.is_alive() for thread in stuck):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
