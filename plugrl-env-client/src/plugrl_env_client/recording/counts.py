"""What was recorded, in numbers."""

import dataclasses
from collections.abc import Sequence
from typing import Any


@dataclasses.dataclass
class RecordingCounts:
    """Running counts of one process, or of several together.

    Attributes:
        folder: where everything is.
        episodes: whole episodes that are safe on disk.
        frames: env steps in them.
        size: bytes written for them, all formats together.
        dropped_episodes: left out because writing was too slow (`--recorder.overflow drop`).
        dropped_frames: env steps of those that had been taken until then.
        failure: why recording ended before the run did; None where it did not.
    """

    folder: str = ""
    episodes: int = 0
    frames: int = 0
    size: int = 0
    dropped_episodes: int = 0
    dropped_frames: int = 0
    failure: str | None = None

    def as_json(self) -> dict[str, Any]:
        """For summary.json."""
        return {
            "folder": self.folder,
            "episodes": self.episodes,
            "frames": self.frames,
            "bytes": self.size,
            "dropped_episodes": self.dropped_episodes,
            "dropped_frames": self.dropped_frames,
            "failure": self.failure,
        }

    def __str__(self) -> str:
        dropped = f", {self.dropped_episodes:,} dropped" if self.dropped_episodes else ""
        failed = "" if self.failure is None else f"; ended early: {self.failure}"
        return (
            f"{self.episodes:,} episodes ({self.frames:,} frames, {self.size / 1e6:.1f} MB) in {self.folder}"
            f"{dropped}{failed}"
        )


def all_recorded(counts: Sequence[RecordingCounts | None]) -> RecordingCounts | None:
    """The counts of several processes together; None where none of them records."""
    known = [count for count in counts if count is not None]
    if not known:
        return None
    return RecordingCounts(
        folder=known[0].folder,
        episodes=sum(count.episodes for count in known),
        frames=sum(count.frames for count in known),
        size=sum(count.size for count in known),
        dropped_episodes=sum(count.dropped_episodes for count in known),
        dropped_frames=sum(count.dropped_frames for count in known),
        failure=next((count.failure for count in known if count.failure is not None), None),
    )
