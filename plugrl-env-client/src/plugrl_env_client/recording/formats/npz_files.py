"""`npz`: one NumPy archive an episode, with everything in it."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from plugrl_env_client.recording.durable import Scratch, publish, size_of
from plugrl_env_client.recording.episode import Episode, Layout
from plugrl_env_client.recording.formats.episode_format import EpisodeFormat, EpisodeNames, Finished


class NpzFiles(EpisodeFormat):
    """Writes `env-0000_episode-000000.npz`: `images.KEY` and `states.KEY` of T + 1 rows, `actions`, `rewards`, ..."""

    name = "npz"
    wants_arrays = True

    def __init__(self, folder: Path, scratch: Scratch) -> None:
        super().__init__(folder, scratch)
        self._names = EpisodeNames(folder)

    def open(self, layout: Layout) -> None:
        """Every file stands for itself: nothing can be in the way."""

    def commit(self, finished: Sequence[Finished]) -> int:
        """One archive each."""
        size = 0
        for episode, _ in finished:
            made = self._scratch.new(".npz")
            np.savez_compressed(made, **_arrays(episode))  # type: ignore[arg-type]
            size += size_of(made)
            publish(made, self._names.path(episode, ".npz"))
        return size


def _arrays(episode: Episode) -> dict[str, np.ndarray]:
    arrays = {f"images.{name}": images for name, images in episode.images.items()}
    arrays.update({f"states.{name}": states for name, states in episode.states.items()})
    if episode.layout.has_text:
        arrays["text"] = episode.text
    arrays.update(
        actions=episode.actions,
        rewards=episode.rewards,
        terminated=episode.terminated,
        truncated=episode.truncated,
    )
    known = {name: value for name, value in episode.facts().items() if value is not None}
    return arrays | {name: np.array(known[name]) for name in ("env", "episode", "seed", "success") if name in known}
