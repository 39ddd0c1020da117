import json
import subprocess
import sys
from datetime import datetime

import pytest
from plugrl_server.record.run_record import Part, RunRecord
from plugrl_server.training.run_folder import FolderError, RunFolder, earlier_runs, run_name

NOW = datetime(2026, 1, 2, 3, 4, 5)


def record(seed=1):
    part = Part("x", "default", None, None, {})
    return RunRecord(policy=part, algorithm=part, run={}, seed=seed, versions={}, command=[])


@pytest.fixture
def folder(tmp_path):
    return RunFolder(tmp_path / "base" / "ppo" / "gaussian-policy" / "run")


@pytest.fixture
def begun(folder):
    folder.open(record(), resume=False)
    folder.metrics.write_text('{"step": 1, "time": 0}\n')
    (folder.checkpoints / "100").mkdir(parents=True)
    folder.episodes.write_text("index\n")
    (folder.client_logs).mkdir()
    folder.close()
    return folder


@pytest.mark.parametrize(
    ("parts", "name"),
    [
        ((None, None, None), "2026-01-02_03-04-05"),
        (("a", None, None), "a"),
        (("a", "p", "s"), "p-a-s"),
        ((None, "p", None), "p-2026-01-02_03-04-05"),
    ],
)
def test_the_name_is_prefix_name_suffix(parts, name):
    assert run_name(*parts, NOW) == name


def test_checking_touches_nothing(folder):
    """Lesson 21: a failed start leaves no folder."""
    folder.check_free(overwrite=False, resume=False)
    assert not folder.path.parent.exists()


def test_open_writes_the_record(folder):
    folder.open(record(seed=5), resume=False)
    assert json.loads((folder.path / "config.json").read_text())["seed"] == 5
    folder.close()


def test_an_earlier_run_is_refused_with_the_flags_that_help(begun):
    with pytest.raises(FolderError, match=r"already holds a run; --resume continues it, --overwrite replaces it"):
        begun.check_free(overwrite=False, resume=False)


def test_overwrite_replaces_it_only_when_the_run_opens(begun):
    begun.check_free(overwrite=True, resume=False)
    assert begun.metrics.exists()
    begun.open(record(), resume=False)
    assert sorted(path.name for path in begun.path.iterdir()) == [".lock", "config.json"]
    begun.close()


def test_resume_keeps_the_files(begun):
    begun.check_free(overwrite=False, resume=True)
    begun.open(record(), resume=True)
    assert begun.metrics.exists()
    assert (begun.checkpoints / "100").exists()
    begun.close()


def test_a_run_that_got_nowhere_does_not_block_its_name(folder):
    """Lesson 21."""
    folder.open(record(), resume=False)
    (folder.checkpoints / "0").mkdir(parents=True)
    folder.metrics.write_text("")
    folder.close()
    folder.check_free(overwrite=False, resume=False)


def test_a_folder_with_other_peoples_files_is_never_emptied(folder):
    folder.path.mkdir(parents=True)
    (folder.path / "thesis.tex").write_text("x")
    for overwrite in (False, True):
        with pytest.raises(FolderError, match=r"holds files that are no run's \(thesis.tex\)"):
            folder.check_free(overwrite=overwrite, resume=False)


def test_resume_without_such_a_run_lists_those_there_are(begun):
    other = RunFolder(begun.path.parent / "typo")
    with pytest.raises(FolderError, match=r"no run to resume at .*typo; runs there: run"):
        other.check_free(overwrite=False, resume=True)
    assert earlier_runs(begun.path.parent) == ["run"]


def test_resume_without_a_checkpoint_is_refused(folder):
    folder.open(record(), resume=False)
    folder.close()
    with pytest.raises(FolderError, match="saved no checkpoint to resume from; start it again without --resume"):
        folder.check_free(overwrite=False, resume=True)


def test_a_file_in_the_way_is_named(folder):
    folder.path.parent.mkdir(parents=True)
    folder.path.write_text("")
    with pytest.raises(FolderError, match="is a file; choose another --exp-name"):
        folder.check_free(overwrite=False, resume=False)


def test_a_folder_that_cannot_be_written_is_an_error_with_its_reason(tmp_path):
    (tmp_path / "base").write_text("")
    with pytest.raises(FolderError, match="cannot be written: Not a directory"):
        RunFolder(tmp_path / "base" / "run").open(record(), resume=False)


HOLDER = """
import fcntl, sys
lock = open(sys.argv[1], "w")
fcntl.flock(lock, fcntl.LOCK_EX)
lock.write("4711\\n"); lock.flush()
print("held", flush=True)
sys.stdin.read()
"""


def test_two_servers_never_share_a_folder_and_a_killed_one_lets_go(folder):
    folder.path.mkdir(parents=True)
    command = [sys.executable, "-c", HOLDER, str(folder.path / ".lock")]
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdout.readline() == b"held\n"
    for attempt in (
        lambda: folder.check_free(overwrite=True, resume=False),
        lambda: folder.open(record(), resume=False),
    ):
        with pytest.raises(FolderError, match=r"is in use by another server \(process 4711\)"):
            attempt()
    holder.kill()
    holder.communicate()
    folder.check_free(overwrite=True, resume=False)


@pytest.mark.parametrize("draft", [".config.json.new", "metrics.new", ".episodes.csv.new"])
def test_a_draft_that_a_killed_server_left_is_no_strangers_file(begun, draft):
    (begun.path / draft).write_text("half")
    begun.check_free(overwrite=True, resume=False)
    begun.open(record(), resume=False)
    begun.close()
    assert not (begun.path / draft).exists()


def test_a_folder_that_cannot_even_be_looked_at_is_an_error_with_its_reason(folder):
    folder.path.parent.mkdir(parents=True)
    with pytest.raises(FolderError, match="cannot be used: File name too long"):
        RunFolder(folder.path.parent / ("x" * 300)).check_free(overwrite=False, resume=False)
