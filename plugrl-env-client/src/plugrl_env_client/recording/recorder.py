"""The recorder of one process: its rollouts' observers, and the thread that writes what they saw."""

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from plugrl_env_client.envs.base_env import BaseEnv, Observation, Step
from plugrl_env_client.observers import RolloutObserver
from plugrl_env_client.recording.counts import RecordingCounts
from plugrl_env_client.recording.durable import Scratch
from plugrl_env_client.recording.episode import Layout, Rows
from plugrl_env_client.recording.formats.episode_format import EpisodeFormat
from plugrl_env_client.recording.formats.frame_files import FrameFiles
from plugrl_env_client.recording.formats.npz_files import NpzFiles
from plugrl_env_client.recording.intake import Abandoned, Begun, Intake, Item, Stepped
from plugrl_env_client.recording.recorder_options import (
    DEFAULT_FPS,
    RecorderOptions,
    RecordingError,
    RecordingFailedError,
)
from plugrl_env_client.recording.writer import Writer

_LAST_SECONDS = 1.0  # for a writer that was stuck already

_logger = logging.getLogger(__name__)


class Recorder:
    """Records the envs of one process, in however many rollouts and threads they run.

    Args:
        options: what to record; `options.on`.
        folder: where everything goes. Several processes may share it.
        seed: of the run's first env: env i was seeded with `seed + i`.
        patience: seconds for which nothing may be written while a rollout, or the end of the run, waits for it: then
            recording has failed. None: for ever.

    Attributes:
        counts: what has been recorded until now.

    Raises:
        RecordingError: nothing can be written there.
    """

    def __init__(
        self,
        options: RecorderOptions,
        folder: Path,
        *,
        seed: int,
        patience: float | None = None,
    ) -> None:
        self.counts = RecordingCounts(folder=str(folder))
        self._options = options
        self._seed = seed
        self._envs = frozenset(options.envs)
        try:
            self._scratch = Scratch(folder)
            self._formats = [
                _make(name, options)(folder / name, self._scratch) for name in dict.fromkeys(options.format)
            ]
        except OSError as err:
            raise RecordingError(f"--recorder.folder {folder}: {err.strerror or err}") from err
        self._patience = patience
        self._stuck = False
        self._intake = Intake(
            options.queue_mib * 2**20, patience=patience, work=lambda: self._scratch.made, stuck=self._give_up
        )
        self._layout: Layout | None = None
        self._beginning = threading.Lock()
        self._counting = threading.Lock()
        self._thread: threading.Thread | None = None

    def observer(self, env: BaseEnv) -> RolloutObserver:
        """A new observer, for the rollout of these envs."""
        return _RecordingObserver(self, self._intake, self._options, env)

    def records(self, env: int, number: int) -> bool:
        """Whether the episode `number` of an env is one to record."""
        return number % self._options.every == 0 and (not self._envs or env in self._envs)

    def begin(self, env: BaseEnv, observation: Observation) -> Layout:
        """A rollout of `env` begins and shows this; the first one's look is that of all.

        Raises:
            RecordingError: there is no such image, or it does not go with what is in the folder.
        """
        options = self._options
        layout = Layout.of(
            observation,
            options.image_keys,
            env_id=env.env_id,
            action_space=env.action_space,
            fps=options.fps or DEFAULT_FPS,
        )
        with self._beginning:
            if self._layout is None:
                for form in self._formats:
                    self._open(form, layout)
                self._layout = layout
                writer = Writer(self._intake, self._formats, layout, self._scratch, self.counts, self._seed_of)
                self._thread = threading.Thread(target=writer.run, name="recorder", daemon=True)
                self._thread.start()
        return self._layout

    def _open(self, form: EpisodeFormat, layout: Layout) -> None:
        try:
            form.open(layout)
        except OSError as err:
            raise RecordingError(f"--recorder.format {form.name}: {err.filename}: {err.strerror}") from err

    def dropped(self, episodes: int, frames: int) -> None:
        """So much was left out; called from any thread."""
        with self._counting:
            self.counts.dropped_episodes += episodes
            self.counts.dropped_frames += frames

    def require(self) -> None:
        """Raise where recording has failed and the run depends on it (`--recorder.required`).

        Raises:
            RecordingFailedError: it has.
        """
        if self._options.required and self.counts.failure is not None:
            raise RecordingFailedError(f"recording failed: {self.counts.failure}")

    def close(self) -> None:
        """Write what was finished, and end. May be called again."""
        self._intake.close()
        if self._thread is None or self._has_ended(self._thread):
            self._scratch.close()

    def _has_ended(self, writer: threading.Thread) -> bool:
        """Wait for the writer, for as long as it gets on."""
        while writer.is_alive():
            before = self._intake.signs()
            writer.join(_LAST_SECONDS if self._stuck else self._patience)
            if writer.is_alive() and self._intake.signs() == before:
                self._give_up()
                return False
        return True

    def _give_up(self) -> None:
        """The writer is stuck, and keeps its files."""
        if self._stuck:
            return
        self._stuck = True
        self.counts.failure = f"the recorder has written nothing for {self._patience:g} s (--hang-timeout)"
        _logger.warning("recording has ended, after %d episodes: %s", self.counts.episodes, self.counts.failure)

    def _seed_of(self, env: int) -> int:
        return self._seed + env


class _RecordingObserver(RolloutObserver):
    """Copies the rows that are recorded, once, and hands them to the writer."""

    def __init__(self, recorder: Recorder, intake: Intake, options: RecorderOptions, env: BaseEnv) -> None:
        self._recorder = recorder
        self._env = env
        self._intake = intake
        self._waits = options.overflow == "wait"
        self.is_waiting = False
        self._first = 0
        self._numbers = np.zeros(0, np.int64)  # of each env's episode
        self._taken = np.zeros(0, np.int64)  # steps of it that were handed over
        self._rows = np.zeros(0, np.int64)  # the envs whose episode is being recorded
        self._images: Sequence[str] = ()
        self._begun = False

    def started(self, first_env: int, num_envs: int) -> None:
        self._first = first_env
        self._numbers = np.full(num_envs, -1)
        self._taken = np.zeros(num_envs, np.int64)

    def reset(self, indices: np.ndarray, observation: Observation) -> None:
        if not self._begun:
            self._images = list(self._recorder.begin(self._env, observation).images)
            self._begun = True
        self._numbers[indices] += 1
        self._rows = np.setdiff1d(self._rows, indices)
        if self._waits:  # also before an episode that is not recorded: the last one may have been
            with self._waiting():
                self._intake.wait_until_safe((self._first + indices).tolist())
        chosen = [i for i in indices.tolist() if self._recorder.records(self._first + i, int(self._numbers[i]))]
        if not chosen:
            return
        rows = np.array(chosen)
        if self._is_over():
            return
        begun = Begun(self._first + rows, self._numbers[rows], Rows.copy(observation, rows, self._images))
        if self._put(begun):
            self._rows = np.union1d(self._rows, rows)
            self._taken[rows] = 0
        else:
            self._recorder.dropped(len(rows), 0)

    def stepped(self, actions: np.ndarray, step: Step, resetting: np.ndarray) -> None:
        if len(self._rows) and not self._is_over():
            self._record(self._rows, actions, step)
        if len(resetting):
            self.reset(resetting, step.observation)

    def closed(self) -> None:
        self._intake.put(Abandoned(self._first + self._rows), wait=False)
        self._rows = self._rows[:0]

    def _put(self, item: Item) -> bool:
        with self._waiting():
            return self._intake.put(item, wait=self._waits)

    @contextlib.contextmanager
    def _waiting(self) -> Iterator[None]:
        self.is_waiting = True
        try:
            yield
        finally:
            self.is_waiting = False

    def _record(self, rows: np.ndarray, actions: np.ndarray, step: Step) -> None:
        terminated, truncated = step.terminated[rows], step.truncated[rows]
        success = step.infos.get("success")
        stepped = Stepped(
            envs=self._first + rows,
            actions=actions[rows],
            rewards=np.asarray(step.rewards, np.float64)[rows],
            terminated=terminated,
            truncated=truncated,
            success=None if success is None else np.asarray(success)[rows],
            rows=Rows.copy(step.observation, rows, self._images),
        )
        done = terminated | truncated
        over = np.count_nonzero(done)
        if over:
            self._intake.ended(stepped.envs[done].tolist())
        if not self._put(stepped):
            self._drop(rows, done)
            return
        self._taken[rows] += 1
        if over:
            self._rows = rows[~done]

    def _drop(self, rows: np.ndarray, done: np.ndarray) -> None:
        """An episode is recorded whole or not at all."""
        envs = self._first + rows
        self._intake.put(Abandoned(envs), wait=False)
        self._intake.safe(envs[done].tolist())
        self._recorder.dropped(len(rows), int(self._taken[rows].sum()))
        self._rows = rows[:0]

    def _is_over(self) -> bool:
        """Whether recording has failed, so that nothing need be copied any more."""
        self._recorder.require()
        if self._recorder.counts.failure is None:
            return False
        self._rows = self._rows[:0]
        return True


def _make(name: str, options: RecorderOptions) -> Callable[[Path, Scratch], EpisodeFormat]:
    """The class of a format; those that need an extra are imported here, when they are asked for."""
    if name == "npz":
        return NpzFiles
    if name == "frames":
        return FrameFiles
    if name == "video":
        from plugrl_env_client.recording.formats.video_files import VideoFiles

        return VideoFiles
    if name == "minari":
        from plugrl_env_client.recording.formats.minari_dataset import MinariDataset

        return MinariDataset
    from plugrl_env_client.recording.formats.lerobot.dataset import LeRobotDataset

    return lambda folder, scratch: LeRobotDataset(folder, scratch, videos=options.lerobot_images == "video")
