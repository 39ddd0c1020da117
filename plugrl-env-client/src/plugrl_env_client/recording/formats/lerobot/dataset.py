"""`lerobot`: a LeRobot dataset, layout v3.0, written with pyarrow and read by lerobot's `LeRobotDataset`.

    meta/info.json          features and numbers; replacing it is what makes new episodes count
    meta/tasks.parquet      the texts, numbered
    meta/stats.json         of every column
    meta/episodes/chunk-000/file-000.parquet    a row an episode
    data/chunk-000/file-000.parquet             a row a frame
    videos/FEATURE/chunk-000/file-000.mp4       one an episode

A row of `data` is a step: what was seen, the action, and as `next.*` what came of it. The layout has no row for an
episode's final observation; its state is kept in `meta/episodes` (`final_observation.state`).
"""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from plugrl_env_client.recording.durable import Scratch, locked, publish, publish_json, read_json, size_of
from plugrl_env_client.recording.episode import Episode, Layout
from plugrl_env_client.recording.formats.episode_format import EpisodeFormat, Finished, Sink
from plugrl_env_client.recording.formats.lerobot.features import (
    ImageStats,
    Stats,
    column_stats,
    columns,
    declared_features,
    features,
    image_features,
    joined_states,
    shown_shape,
    together,
)
from plugrl_env_client.recording.formats.lerobot.tables import (
    append_rows,
    episodes_table,
    frames_table,
    read_stats,
    read_tasks,
    write_tasks,
)
from plugrl_env_client.recording.formats.picture import coloured
from plugrl_env_client.recording.recorder_options import RecordingError

VERSION = "v3.0"
CHUNK = 1000
_FILE = "chunk-{chunk_index:03d}/file-{file_index:03d}"
DATA_PATH, VIDEO_PATH = f"data/{_FILE}.parquet", f"videos/{{video_key}}/{_FILE}.mp4"


class _Images(Sink):
    """Statistics of an episode's images, and their videos. It stays one frame behind: the final one is not kept."""

    def __init__(self, folder: Path, layout: Layout, *, videos: bool) -> None:
        self.folder = folder
        self.stats = {feature: ImageStats() for feature in image_features(layout).values()}
        self._features = image_features(layout)
        self._last: Mapping[str, np.ndarray] | None = None
        self._encoders: dict[str, Any] = {}
        if videos and layout.images:
            from plugrl_env_client.recording.formats.video_files import VideoEncoder

            folder.mkdir()
            self._encoders = {
                name: VideoEncoder(self.path(feature), layout.fps) for name, feature in self._features.items()
            }

    def path(self, feature: str) -> Path:
        return self.folder / f"{feature}.mp4"

    def frame(self, images: Mapping[str, np.ndarray]) -> None:
        for name, image in (self._last or {}).items():
            self.stats[self._features[name]].add(image)
            if name in self._encoders:
                self._encoders[name].add(coloured(image))
        self._last = images

    def complete(self) -> None:
        for encoder in self._encoders.values():
            encoder.close()

    def discard(self) -> None:
        self.complete()
        shutil.rmtree(self.folder, ignore_errors=True)


class LeRobotDataset(EpisodeFormat):
    """Writes a dataset into its folder, and adds to one that is there.

    Args:
        folder: the dataset's root.
        scratch: where files are made.
        videos: keep images as mp4; otherwise as PNG in the tables, which is exact.
    """

    name = "lerobot"

    def __init__(self, folder: Path, scratch: Scratch, *, videos: bool) -> None:
        super().__init__(folder, scratch)
        self._videos = videos
        self.wants_arrays = not videos
        self._lock = folder.parent / ".lerobot.lock"
        self._layout: Layout

    def open(self, layout: Layout) -> None:
        """Compare with the dataset that is there, as far as is known before the first action.

        Raises:
            RecordingError: it is of another env, or of another rate.
        """
        self._layout = layout
        info = self._read_info()
        if info is None:
            return
        if info["fps"] != layout.fps:
            raise RecordingError(f"--recorder.fps {layout.fps}: {self._folder} holds a dataset of {info['fps']}")
        shapes = {feature: shown_shape(layout.images[name]) for name, feature in image_features(layout).items()}
        kind = "video" if self._videos else "image"
        there = {
            name: known["shape"] for name, known in info["features"].items() if known["dtype"] in ("video", "image")
        }
        if there != shapes or any(info["features"][name]["dtype"] != kind for name in there):
            raise RecordingError(f"{self._folder} holds a dataset of other images, or keeps them in another way")
        if any(info["features"].get(name) != known for name, known in declared_features(layout).items()):
            raise self._other_columns()

    def begin(self) -> Sink:
        """Follow the episode's images."""
        return _Images(self._scratch.new(), self._layout, videos=self._videos)

    def commit(self, finished: Sequence[Finished]) -> int:
        """Files first, info.json last."""
        with locked(self._lock):
            info = self._read_info() or self._new_info(finished[0].episode)
            if info["features"] != self._features_of(finished[0].episode):
                raise self._other_columns()
            tasks = read_tasks(self._folder)
            size = self._write(finished, info, tasks)
            publish_json(info, self._folder / "meta/info.json", self._scratch)
        return size

    def _write(self, finished: Sequence[Finished], info: dict[str, Any], tasks: dict[str, int]) -> int:
        known_episodes, known_frames = info["total_episodes"], info["total_frames"]
        size, known_tasks, before = 0, len(tasks), dict(info)
        stats: list[dict[str, Stats]] = []
        tables, rows = [], []
        for episode, sink in finished:
            assert isinstance(sink, _Images)  # noqa: S101 - begin made it
            number, start = info["total_episodes"], info["total_frames"]
            texts = _texts(episode)
            task_rows = np.array([tasks.setdefault(text, len(tasks)) for text in texts])
            size += self._place_videos(sink, number)
            tables.append(frames_table(episode, task_rows, number, start, pictures=not self._videos))
            stats.append(_stats_of(episode, sink))
            rows.append(
                _row(episode, number, start, sorted(set(texts)), stats[-1]) | self._video_columns(episode, number)
            )
            info["total_episodes"] += 1
            info["total_frames"] += len(episode)
        if len(tasks) > known_tasks:
            write_tasks(self._folder, tasks, self._scratch)
        place = append_rows(self._folder / "data", tables, ("index", known_frames), self._scratch)
        meta = [episodes_table(rows, place)]
        append_rows(self._folder / "meta/episodes", meta, ("episode_index", known_episodes), self._scratch)
        self._write_stats(stats, before)
        info["total_tasks"] = len(tasks)
        info["splits"] = {"train": f"0:{info['total_episodes']}"}
        return size + sum(int(table.nbytes) for table in (*tables, *meta))

    def _place_videos(self, sink: _Images, number: int) -> int:
        if not self._videos or not sink.stats:
            return 0
        sink.complete()
        size = size_of(sink.folder)
        for feature in sink.stats:
            publish(sink.path(feature), self._folder / VIDEO_PATH.format(video_key=feature, **_file(number)))
        return size

    def _video_columns(self, episode: Episode, number: int) -> dict[str, Any]:
        if not self._videos:
            return {}
        found: dict[str, Any] = {}
        for feature in image_features(episode.layout).values():
            found.update({f"videos/{feature}/{name}": index for name, index in _file(number).items()})
            found[f"videos/{feature}/from_timestamp"] = 0.0
            found[f"videos/{feature}/to_timestamp"] = len(episode) / episode.layout.fps
        return found

    def _write_stats(self, new: Sequence[dict[str, Stats]], before: Mapping[str, Any]) -> None:
        path = self._folder / "meta/stats.json"
        known: list[dict[str, Stats]] = []
        if before["total_episodes"]:
            kept = read_json(path) or {}
            if kept.get("action", {}).get("count") == [before["total_frames"]]:
                known = [{name: {k: np.array(v) for k, v in one.items()} for name, one in kept.items()}]
            else:  # a killed process had counted what it did not finish
                known = read_stats(self._folder, before["total_episodes"])
        merged = {name: together([one[name] for one in (*known, *new)]) for name in new[0]}
        content = {name: {k: v.tolist() for k, v in one.items()} for name, one in merged.items()}
        publish_json(content, path, self._scratch)

    def _read_info(self) -> dict[str, Any] | None:
        path = self._folder / "meta/info.json"
        info = read_json(path)
        if info is not None and info.get("codebase_version") != VERSION:
            raise RecordingError(
                f"{path}: expected a LeRobot dataset of layout {VERSION}, got {info.get('codebase_version')}"
            )
        return info

    def _other_columns(self) -> RecordingError:
        return RecordingError(f"{self._folder} holds a dataset of other states or actions")

    def _features_of(self, episode: Episode) -> dict[str, Any]:
        if not self._videos or not episode.layout.images:
            return features(episode, None)
        from plugrl_env_client.recording.formats.video_files import codec_name, pixel_format

        video = {
            "video.codec": "h264" if codec_name() == "libx264" else codec_name(),
            "video.is_depth_map": False,
            "video.fps": episode.layout.fps,
            "video.channels": 3,
            "has_audio": False,
        }
        found = features(episode, video)
        for feature in image_features(episode.layout).values():
            height, width, _ = found[feature]["shape"]
            found[feature]["info"]["video.pix_fmt"] = pixel_format(height, width)
        return found

    def _new_info(self, episode: Episode) -> dict[str, Any]:
        return {
            "codebase_version": VERSION,
            "robot_type": episode.layout.env_id,
            "total_episodes": 0,
            "total_frames": 0,
            "total_tasks": 0,
            "chunks_size": CHUNK,
            "data_files_size_in_mb": 100,
            "video_files_size_in_mb": 200,
            "fps": episode.layout.fps,
            "splits": {},
            "data_path": DATA_PATH,
            "video_path": VIDEO_PATH if self._videos and episode.layout.images else None,
            "features": self._features_of(episode),
        }


def _file(number: int) -> dict[str, int]:
    return {"chunk_index": number // CHUNK, "file_index": number % CHUNK}


def _texts(episode: Episode) -> list[str]:
    """What was to be done at each step; where the env gives no text, its name."""
    return [text or episode.layout.env_id for text in episode.text[:-1].tolist()]


def _stats_of(episode: Episode, sink: _Images) -> dict[str, Stats]:
    found = {name: column_stats(column) for name, column in columns(episode).items()}
    return found | {feature: running.stats() for feature, running in sink.stats.items()}


def _row(episode: Episode, number: int, start: int, tasks: list[str], stats: Mapping[str, Stats]) -> dict[str, Any]:
    """A row of `meta/episodes`."""
    facts = episode.facts()
    row: dict[str, Any] = {
        "episode_index": number,
        "tasks": tasks,
        "length": len(episode),
        "dataset_from_index": start,
        "dataset_to_index": start + len(episode),
        "env_index": episode.env,
        "env_episode": episode.number,
    }
    row.update({name: facts[name] for name in ("seed", "return", "terminated", "truncated", "success")})
    if episode.states:
        row["final_observation.state"] = joined_states(episode)[-1].tolist()
    for name, one in stats.items():
        row.update({f"stats/{name}/{kind}": values.tolist() for kind, values in one.items()})
    return row
