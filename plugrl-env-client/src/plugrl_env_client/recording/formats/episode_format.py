"""The contract of a format: what the writer's thread asks of it."""

import abc
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from plugrl_env_client.recording.durable import Scratch
from plugrl_env_client.recording.episode import Episode, Layout
from plugrl_env_client.recording.recorder_options import RecordingError


class Sink:
    """Takes the images of one episode while it is under way. This one leaves all to `EpisodeFormat.commit`."""

    def frame(self, images: Mapping[str, np.ndarray]) -> None:
        """The next observation's images, uint8[h,w,c] each; the first call is the episode's first observation."""

    def discard(self) -> None:
        """The episode will not be finished."""


class Finished(NamedTuple):
    """A whole episode and what a format has made of its images."""

    episode: Episode
    sink: Sink


class EpisodeFormat(abc.ABC):
    """Writes whole episodes.

    Args:
        folder: its own.
        scratch: where files are made.

    Attributes:
        name: as on the command line; also the name of its folder.
        wants_arrays: whether `Episode.images` must be there.
        wants_images: whether it makes no sense without any image.
    """

    name: str
    wants_arrays: bool = False
    wants_images: bool = False

    def __init__(self, folder: Path, scratch: Scratch) -> None:
        self._folder = folder
        self._scratch = scratch

    def open(self, layout: Layout) -> None:
        """The run begins.

        Raises:
            RecordingError: what is in the folder already does not go with it.
        """
        if self.wants_images and not layout.images:
            raise RecordingError(f"--recorder.format {self.name}: {layout.env_id} shows no images")

    def begin(self) -> Sink:
        """An episode begins."""
        return Sink()

    @abc.abstractmethod
    def commit(self, finished: Sequence[Finished]) -> int:
        """Make episodes safe; all of them survive afterwards, and a reader finds them.

        Returns:
            Bytes written.

        Raises:
            OSError: they cannot be written.
            RecordingError: they do not go with what is there.
        """


class EpisodeNames:
    """Names of files or folders that hold one episode each; a run in the same folder goes on counting.

    Args:
        folder: where they are.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._first: dict[int, int] = {}
        for path in folder.glob("env-*_episode-*"):
            env, _, number = path.name.partition(".")[0].removeprefix("env-").partition("_episode-")
            if env.isdecimal() and number.isdecimal():
                self._first[int(env)] = max(self._first.get(int(env), 0), int(number) + 1)

    def path(self, episode: Episode, suffix: str = "") -> Path:
        """Where an episode goes; nothing is there."""
        number = self._first.get(episode.env, 0) + episode.number
        while (path := self._folder / f"env-{episode.env:04d}_episode-{number:06d}{suffix}").exists():
            number += 1  # another run is writing here too
        return path
