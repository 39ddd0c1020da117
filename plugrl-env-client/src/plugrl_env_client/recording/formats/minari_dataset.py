"""`minari`: a Minari dataset (HDF5), written with h5py and read by `minari.MinariDataset` (extra `minari`).

Minari keeps all episodes in one HDF5 file, and a process that is killed while it writes to one can leave it unreadable.
So episodes go to files of their own (`data/episodes/`), which are never touched again, and `data/main_data.hdf5` only
links to them; it and `data/metadata.json` are replaced as a whole.
"""

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from plugrl_protocol.spaces import ActionSpace, BoxSpace, DiscreteSpace, MultiDiscreteSpace

from plugrl_env_client.recording.durable import Scratch, locked, publish, publish_json, read_json, size_of
from plugrl_env_client.recording.episode import Episode, Layout
from plugrl_env_client.recording.formats.episode_format import EpisodeFormat, Finished
from plugrl_env_client.recording.recorder_options import RecordingError

DATASET_ID = "recorded-v0"

_SPACES = ("observation_space", "action_space")
_PICTURE_LENGTH = 32  # from this size on Minari takes uint8 arrays for images
_TEXT_LENGTH = 4096
_TEXT_CHARACTERS = "".join(map(chr, range(32, 127)))


class MinariDataset(EpisodeFormat):
    """Writes `recorded-v0/data`.

    An observation is a dictionary with `images`, `states` and `text`, as far as there are any; that of an env which
    shows one state and nothing else is the state itself. Episodes have the attributes of `Episode.facts`.
    """

    name = "minari"
    wants_arrays = True

    def __init__(self, folder: Path, scratch: Scratch) -> None:
        super().__init__(folder, scratch)
        self._data = folder / DATASET_ID / "data"
        self._lock = folder / ".lock"
        self._spaces: dict[str, str] = {}

    def open(self, layout: Layout) -> None:
        """Compare with the dataset that is there.

        Raises:
            RecordingError: it is of another env.
        """
        self._spaces = {"observation_space": json.dumps(_observation_space(layout))}
        if layout.action_space is not None:
            self._spaces["action_space"] = json.dumps(_action_space(layout.action_space))
        with locked(self._lock):
            self._read()

    def commit(self, finished: Sequence[Finished]) -> int:
        """One file for all of them, then the links, then the numbers."""
        episodes = [episode for episode, _ in finished]
        if "action_space" not in self._spaces:
            self._spaces["action_space"] = json.dumps(_any_action(episodes[0].actions))
        with locked(self._lock):
            metadata = self._read() or self._new(episodes[0].layout)
            first = metadata["total_episodes"]
            part, size = self._write_part(episodes, first)
            self._link(part, range(first, first + len(episodes)))
            metadata["total_episodes"] += len(episodes)
            metadata["total_steps"] += sum(map(len, episodes))
            metadata["dataset_size"] = round(metadata["dataset_size"] + size / 1e6, 6)
            publish_json(metadata, self._data / "metadata.json", self._scratch)
        return size

    def _read(self) -> dict[str, Any] | None:
        metadata = read_json(self._data / "metadata.json")
        if metadata is None:
            return None
        for space, ours in self._spaces.items():
            if metadata.get(space) != ours:
                raise RecordingError(f"{self._data} holds a dataset of another {space.replace('_', ' ')}")
        return metadata

    def _new(self, layout: Layout) -> dict[str, Any]:
        pictures = any(min(shape[:2]) >= _PICTURE_LENGTH for shape in layout.images.values())
        return {
            "total_episodes": 0,
            "total_steps": 0,
            "dataset_size": 0.0,
            "data_format": "hdf5",
            "jpeg_encoding": False,  # exact; older readers than 0.5.4 take every picture for JPEG
            "dataset_id": DATASET_ID,
            "minari_version": "0.5.4" if pictures else "0.5.0",
            "env_id": layout.env_id,
            **self._spaces,
        }

    def _write_part(self, episodes: Sequence[Episode], first: int) -> tuple[Path, int]:
        made = self._scratch.new(".hdf5")
        with h5py.File(made, "w") as file:
            for number, episode in enumerate(episodes, first):
                _write_episode(file.create_group(f"episode_{number}"), number, episode)
        part = self._data / "episodes" / f"{first:06d}.hdf5"  # replaces one that a killed process did not link to
        size = size_of(made)
        publish(made, part)
        return part, size

    def _link(self, part: Path, numbers: range) -> None:
        main = self._data / "main_data.hdf5"
        made = self._scratch.new(".hdf5")
        if main.exists():
            shutil.copyfile(main, made)
        with h5py.File(made, "a", track_order=True) as file:
            _unlink_from(file, numbers.start)
            for number in numbers:
                name = f"episode_{number}"
                file[name] = h5py.ExternalLink(f"{part.parent.name}/{part.name}", name)
        publish(made, main)


def _write_episode(group: Any, number: int, episode: Episode) -> None:
    group.attrs.update({"id": number, "total_steps": len(episode)})
    group.attrs.update({name: value for name, value in episode.facts().items() if value is not None})
    if _is_bare(episode.layout):
        group["observations"] = next(iter(episode.states.values()))
    else:
        observations = group.create_group("observations")
        for name, images in episode.images.items():
            observations.create_dataset(
                f"images/{_key(name)}",
                data=images,
                chunks=(1, *images.shape[1:]),
                compression="gzip",
                compression_opts=1,
            )
        for name, states in episode.states.items():
            observations[f"states/{_key(name)}"] = states
        if episode.layout.has_text:
            observations.create_dataset("text", data=episode.text.tolist(), dtype=h5py.string_dtype("utf-8"))
    group["actions"] = episode.actions
    group["rewards"] = episode.rewards
    group["terminations"] = episode.terminated
    group["truncations"] = episode.truncated
    group.create_group("infos")


def _unlink_from(file: Any, number: int) -> None:
    """Remove what a killed process has linked and not counted any more."""
    while file.id.links.exists(f"episode_{number}".encode()):  # whether or not it leads anywhere
        del file[f"episode_{number}"]
        number += 1


def _is_bare(layout: Layout) -> bool:
    return len(layout.states) == 1 and not layout.images and not layout.has_text


def _key(name: str) -> str:
    """A name without slashes, which would be groups."""
    return re.sub("/", ".", name)


def _observation_space(layout: Layout) -> dict[str, Any]:
    states = {_key(name): _unbounded((width,), dtype) for name, (width, dtype) in layout.states.items()}
    if _is_bare(layout):
        return next(iter(states.values()))
    spaces: dict[str, Any] = {}
    if layout.images:
        images = {_key(name): _unbounded(shape, np.dtype(np.uint8)) for name, shape in layout.images.items()}
        spaces["images"] = _dictionary(images)
    if states:
        spaces["states"] = _dictionary(states)
    if layout.has_text:
        spaces["text"] = {
            "type": "Text",
            "max_length": _TEXT_LENGTH,
            "min_length": 0,
            "charset": _TEXT_CHARACTERS,
        }
    return _dictionary(spaces)


def _action_space(space: ActionSpace) -> dict[str, Any]:
    if isinstance(space, BoxSpace):
        return _box(space.low, space.high)
    if isinstance(space, DiscreteSpace):
        return {"type": "Discrete", "dtype": "int64", "start": space.start, "n": space.n}
    if isinstance(space, MultiDiscreteSpace):
        start = np.zeros_like(space.nvec).tolist()
        return {"type": "MultiDiscrete", "dtype": "int64", "nvec": space.nvec.tolist(), "start": start}
    return {"type": "MultiBinary", "n": space.n}


def _any_action(actions: np.ndarray) -> dict[str, Any]:
    return _unbounded(actions.shape[1:], actions.dtype)


def _unbounded(shape: tuple[int, ...], dtype: "np.dtype[Any]") -> dict[str, Any]:
    """The Box of everything that fits in a dtype: an env does not tell the bounds of what it shows."""
    low, high = (-np.inf, np.inf) if dtype.kind == "f" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    return _box(np.full(shape, low, dtype), np.full(shape, high, dtype))


def _box(low: np.ndarray, high: np.ndarray) -> dict[str, Any]:
    return {
        "type": "Box",
        "dtype": str(low.dtype),
        "shape": list(low.shape),
        "low": low.tolist(),
        "high": high.tolist(),
    }


def _dictionary(spaces: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "Dict", "subspaces": dict(spaces)}
