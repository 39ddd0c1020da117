"""Parquet files grow up to a size, and rows that do not count are left out."""

import pytest
from plugrl_env_client.recording.durable import Scratch

pa = pytest.importorskip("pyarrow", reason="the extra `lerobot-dataset` is not installed")

import pyarrow.parquet as pq  # noqa: E402
from plugrl_env_client.recording.formats.lerobot import tables  # noqa: E402


@pytest.fixture
def scratch(tmp_path):
    scratch = Scratch(tmp_path)
    yield scratch
    scratch.close()


def table(*numbers):
    return pa.table({"index": list(numbers)})


def held(folder):
    return {str(path.relative_to(folder)): pq.read_table(path)["index"].to_pylist() for path in folder.glob("*/*")}


def test_rows_are_added_to_the_last_file(tmp_path, scratch):
    folder = tmp_path / "data"
    assert tables.append_rows(folder, [table(0, 1), table(2)], ("index", 0), scratch) == (0, 0)
    assert tables.append_rows(folder, [table(3)], ("index", 3), scratch) == (0, 0)
    assert held(folder) == {"chunk-000/file-000.parquet": [0, 1, 2, 3]}


def test_large_files_are_left_alone(tmp_path, scratch, monkeypatch):
    monkeypatch.setattr(tables, "_GROWS_UNTIL", 0)
    folder = tmp_path / "data"
    for k in range(3):
        assert tables.append_rows(folder, [table(k)], ("index", k), scratch) == (0, k)
    # a killed process had begun two more files: the rows that count are followed by the new ones
    tables.append_rows(folder, [table(1)], ("index", 1), scratch)
    assert held(folder) == {"chunk-000/file-000.parquet": [0], "chunk-000/file-001.parquet": [1]}


def test_rows_that_do_not_count_are_left_out(tmp_path, scratch):
    folder = tmp_path / "data"
    tables.append_rows(folder, [table(0, 1, 2)], ("index", 0), scratch)
    tables.append_rows(folder, [table(2, 3)], ("index", 2), scratch)
    assert held(folder) == {"chunk-000/file-000.parquet": [0, 1, 2, 3]}
    tables.append_rows(folder, [table(0)], ("index", 0), scratch)
    assert held(folder) == {"chunk-000/file-000.parquet": [0]}


def test_a_chunk_has_a_thousand_files():
    assert tables.Place(0, 998).next() == (0, 999)
    assert tables.Place(0, 999).next() == (1, 0)


def test_tasks_are_read_back_in_order_and_by_pandas(tmp_path, scratch):
    assert tables.read_tasks(tmp_path) == {}
    tasks = {"pick": 0, "place, gently": 1}
    tables.write_tasks(tmp_path, tasks, scratch)
    assert list(tables.read_tasks(tmp_path).items()) == list(tasks.items())
    pandas = pytest.importorskip("pandas", reason="reads it as lerobot does")
    frame = pandas.read_parquet(tmp_path / "meta/tasks.parquet")
    assert frame.loc["place, gently"].task_index == 1
