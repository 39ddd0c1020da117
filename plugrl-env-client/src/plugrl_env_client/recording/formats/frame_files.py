"""`frames`: a folder of PNG files an episode."""

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from plugrl_env_client.recording.durable import Scratch, publish, size_of
from plugrl_env_client.recording.formats.episode_format import EpisodeFormat, EpisodeNames, Finished, Sink
from plugrl_env_client.recording.formats.picture import picture, png


class FolderSink(Sink):
    """An episode that is made as a folder.

    Attributes:
        path: the folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir()

    def complete(self) -> None:
        """Everything has been shown: close what is open."""

    def discard(self) -> None:
        """Remove it."""
        shutil.rmtree(self.path, ignore_errors=True)


class _FrameSink(FolderSink):
    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._count = 0

    def frame(self, images: Mapping[str, np.ndarray]) -> None:
        for name, image in images.items():
            folder = self.path / file_name(name)
            folder.mkdir(exist_ok=True)
            (folder / f"{self._count:06d}.png").write_bytes(png(picture(image)))
        self._count += 1


class FrameFiles(EpisodeFormat):
    """Writes `env-0000_episode-000000/KEY/000000.png` and so on, and `episode.json` beside the images' folders."""

    name = "frames"
    wants_images = True

    def __init__(self, folder: Path, scratch: Scratch) -> None:
        super().__init__(folder, scratch)
        self._names = EpisodeNames(folder)

    def begin(self) -> Sink:
        """A folder for the episode."""
        return _FrameSink(self._scratch.new())

    def commit(self, finished: Sequence[Finished]) -> int:
        """Move each folder to its place."""
        size = 0
        for episode, sink in finished:
            assert isinstance(sink, FolderSink)  # noqa: S101 - begin made it
            sink.complete()
            (sink.path / "episode.json").write_text(json.dumps(episode.facts(), indent=2) + "\n", encoding="utf-8")
            size += size_of(sink.path)
            publish(sink.path, self._names.path(episode))
        return size


def file_name(key: str) -> str:
    """A key of an observation as the name of a file."""
    return key.replace("/", ".")
