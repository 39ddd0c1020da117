"""`video`: an mp4 of every image an episode, and the encoder, which `lerobot` uses too (extra `video`, PyAV)."""

import functools
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from plugrl_env_client.recording.durable import Scratch
from plugrl_env_client.recording.episode import Layout
from plugrl_env_client.recording.formats.episode_format import Sink
from plugrl_env_client.recording.formats.frame_files import FolderSink, FrameFiles, file_name
from plugrl_env_client.recording.formats.picture import coloured

_OPTIONS = {
    "libx264": {"preset": "veryfast", "crf": "20", "bf": "0", "threads": "1"},
    "mpeg4": {"qscale": "3", "bf": "0", "threads": "1"},
}
_KEY_FRAME_SECONDS = 1


@functools.cache
def codec_name() -> str:
    """The encoder to use: libx264 where this FFmpeg has it, else mpeg4."""
    import av

    return "libx264" if "libx264" in av.codecs_available else "mpeg4"


def pixel_format(height: int, width: int) -> str:
    """yuv420p, which everything plays, where both lengths are even; yuv444p, which has no such limit, elsewhere."""
    return "yuv420p" if (height % 2 == 0 and width % 2 == 0) or codec_name() != "libx264" else "yuv444p"


class VideoEncoder:
    """An mp4 file in the making; frame i is shown at i / fps.

    Args:
        path: the file.
        fps: frames per second.
    """

    def __init__(self, path: Path, fps: int) -> None:
        import av

        self._container: Any = av.open(str(path), "w", format="mp4")
        self._fps = fps
        self._stream: Any = None
        self._count = 0

    def add(self, shown: np.ndarray) -> None:
        """Encode the next frame, uint8[h,w,3]."""
        import av

        if self._stream is None:
            self._begin(*shown.shape[:2])
        frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(shown), format="rgb24")
        frame.pts = self._count
        frame.time_base = Fraction(1, self._fps)
        self._container.mux(self._stream.encode(frame))
        self._count += 1

    def close(self) -> None:
        """Finish the file."""
        if self._stream is not None:
            self._container.mux(self._stream.encode(None))
        self._container.close()

    def _begin(self, height: int, width: int) -> None:
        name = codec_name()
        stream = self._container.add_stream(name, rate=self._fps, options=_OPTIONS[name])
        stream.width, stream.height = width, height
        stream.pix_fmt = pixel_format(height, width)
        stream.codec_context.time_base = Fraction(1, self._fps)
        stream.codec_context.gop_size = _KEY_FRAME_SECONDS * self._fps
        self._stream = stream


class _VideoSink(FolderSink):
    def __init__(self, path: Path, layout: Layout) -> None:
        super().__init__(path)
        self._encoders = {name: VideoEncoder(path / f"{file_name(name)}.mp4", layout.fps) for name in layout.images}

    def frame(self, images: Mapping[str, np.ndarray]) -> None:
        for name, encoder in self._encoders.items():
            encoder.add(_even(coloured(images[name])))

    def complete(self) -> None:
        for encoder in self._encoders.values():
            encoder.close()

    def discard(self) -> None:
        self.complete()
        super().discard()


class VideoFiles(FrameFiles):
    """Writes `env-0000_episode-000000/KEY.mp4` and `episode.json`."""

    name = "video"

    def __init__(self, folder: Path, scratch: Scratch) -> None:
        super().__init__(folder, scratch)
        self._layout: Layout

    def open(self, layout: Layout) -> None:
        """Remember what there is to see."""
        super().open(layout)
        self._layout = layout

    def begin(self) -> Sink:
        """A folder with an encoder for every image."""
        return _VideoSink(self._scratch.new(), self._layout)


def _even(shown: np.ndarray) -> np.ndarray:
    """Repeat the last row and column where their number is odd: players want even ones."""
    height, width = shown.shape[:2]
    if height % 2 == 0 and width % 2 == 0:
        return shown
    return np.pad(shown, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")
