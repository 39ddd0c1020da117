"""The parquet files of a LeRobot dataset.

Small files are made larger, by replacing them with what they held and the new rows, up to a size from which that costs
too much; a killed process can leave rows behind that info.json does not count, which the next one leaves out.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from plugrl_env_client.recording.durable import Scratch, publish
from plugrl_env_client.recording.episode import Episode
from plugrl_env_client.recording.formats.lerobot.features import Stats, columns, image_features
from plugrl_env_client.recording.formats.picture import coloured, png

_GROWS_UNTIL = 2**18  # bytes
_CHUNK = 1000
_PICTURE = pa.struct({"bytes": pa.binary(), "path": pa.string()})
_KINDS = ("min", "max", "mean", "std", "count")
_TEXT_INDEX = "__index_level_0__"


class Place(NamedTuple):
    """Which file of a folder: `chunk-000/file-000.parquet`."""

    chunk_index: int
    file_index: int

    def path(self, folder: Path) -> Path:
        """The file."""
        return folder / f"chunk-{self.chunk_index:03d}" / f"file-{self.file_index:03d}.parquet"

    def next(self) -> "Place":
        """The one after it."""
        full = self.file_index == _CHUNK - 1
        return Place(self.chunk_index + 1, 0) if full else Place(self.chunk_index, self.file_index + 1)


def frames_table(episode: Episode, tasks: np.ndarray, number: int, start: int, *, pictures: bool) -> pa.Table:
    """The rows of `data` of one episode.

    Args:
        episode: of T steps.
        tasks: int64[T], rows of the table of tasks.
        number: the episode's index in the dataset.
        start: index of its first frame.
        pictures: whether the images are in the table; an episode may have them for another format only.
    """
    length = len(episode)
    data = {name: _array(column) for name, column in columns(episode).items()}
    if pictures:
        for name, feature in image_features(episode.layout).items():
            files = [{"bytes": png(coloured(image)), "path": None} for image in episode.images[name][:-1]]
            data[feature] = pa.array(files, _PICTURE)
    frames = np.arange(length)
    data["timestamp"] = pa.array((frames / episode.layout.fps).astype(np.float32))
    data["frame_index"] = pa.array(frames)
    data["episode_index"] = pa.array(np.full(length, number))
    data["index"] = pa.array(start + frames)
    data["task_index"] = pa.array(tasks)
    return pa.table(data)


def episodes_table(rows: Sequence[dict[str, Any]], data: Place) -> pa.Table:
    """The rows of `meta/episodes`, with the place of their frames."""
    complete = [{**row, "data/chunk_index": data.chunk_index, "data/file_index": data.file_index} for row in rows]
    nullable = {"seed": pa.int64(), "success": pa.bool_()}
    table = pa.Table.from_pylist(complete)
    for name, kind in nullable.items():
        table = table.set_column(table.column_names.index(name), name, table.column(name).cast(kind))
    return table


def append_rows(folder: Path, tables: Sequence[pa.Table], known: tuple[str, int], scratch: Scratch) -> Place:
    """Add rows to the last file of a folder, or begin a new one.

    Args:
        folder: `data` or `meta/episodes`.
        tables: the rows.
        known: a column and how many rows the dataset counts: rows with that number or a higher one are left out.
        scratch: where the file is made.

    Returns:
        Where they are. `meta/episodes` tables say so of themselves.
    """
    column, count = known
    place, old = _end_of(folder, column, count)
    if column == "episode_index":
        tables = [_with_own_place(table, place) for table in tables]
    made = scratch.new(".parquet")
    pq.write_table(pa.concat_tables([*([old] if old is not None else []), *tables]), made, compression="snappy")
    publish(made, place.path(folder))
    return place


def read_tasks(root: Path) -> dict[str, int]:
    """The texts that are known, with their numbers, in order."""
    path = root / "meta/tasks.parquet"
    if not path.exists():
        return {}
    table = pq.read_table(path)
    rows = zip(table.column(_TEXT_INDEX).to_pylist(), table.column("task_index").to_pylist(), strict=True)
    return dict(sorted(rows, key=lambda row: row[1]))


def write_tasks(root: Path, tasks: dict[str, int], scratch: Scratch) -> None:
    """Write them the way pandas reads a table whose index is the text."""
    table = pa.table({"task_index": pa.array(list(tasks.values())), _TEXT_INDEX: pa.array(list(tasks))})
    made = scratch.new(".parquet")
    pq.write_table(table.replace_schema_metadata({"pandas": json.dumps(_PANDAS)}), made)
    publish(made, root / "meta/tasks.parquet")


def read_stats(root: Path, episodes: int) -> list[dict[str, Stats]]:
    """The statistics of the first so many episodes, from their table."""
    found: list[dict[str, Stats]] = []
    for path in sorted((root / "meta/episodes").glob("*/*.parquet")):
        for row in pq.read_table(path).to_pylist():
            if row["episode_index"] < episodes:
                names = [column.split("/")[1] for column in row if column.endswith("/count")]
                found.append({name: {kind: np.array(row[f"stats/{name}/{kind}"]) for kind in _KINDS} for name in names})
    return found


def _end_of(folder: Path, column: str, count: int) -> tuple[Place, pa.Table | None]:
    """The file that the next rows belong in, and what it holds that counts."""
    files = sorted(folder.glob("*/*.parquet"))
    while files:
        last = files.pop()
        place = Place(int(last.parent.name[-3:]), int(last.stem[-3:]))
        table = pq.read_table(last)
        table = table.filter(pc.less(table.column(column), count))
        if table.num_rows:
            return (place.next(), None) if last.stat().st_size >= _GROWS_UNTIL else (place, table)
        last.unlink()  # nothing in it counts
    return Place(0, 0), None


def _array(column: np.ndarray) -> pa.Array:
    """A column [T,d]: numbers where d is 1, lists of d elsewhere, as the readers expect."""
    flat = pa.array(np.ascontiguousarray(column).reshape(-1))
    return flat if column.shape[1] == 1 else pa.FixedSizeListArray.from_arrays(flat, column.shape[1])


def _with_own_place(table: pa.Table, place: Place) -> pa.Table:
    for name, index in place._asdict().items():
        table = table.append_column(f"meta/episodes/{name}", pa.array(np.full(table.num_rows, index)))
    return table


_PANDAS = {
    "index_columns": [_TEXT_INDEX],
    "column_indexes": [
        {
            "name": None,
            "field_name": None,
            "pandas_type": "unicode",
            "numpy_type": "object",
            "metadata": {"encoding": "UTF-8"},
        }
    ],
    "columns": [
        {
            "name": "task_index",
            "field_name": "task_index",
            "pandas_type": "int64",
            "numpy_type": "int64",
            "metadata": None,
        },
        {"name": None, "field_name": _TEXT_INDEX, "pandas_type": "unicode", "numpy_type": "object", "metadata": None},
    ],
    "creator": {"library": "pyarrow", "version": pa.__version__},
    "pandas_version": "2.0.0",
}
"""The schema metadata by which pandas finds the index again."""
