"""Real processes whose recorder is stuck, or slow: the first is named, for the second one everybody waits."""

import json
import os
import signal
import time
from pathlib import Path

import pytest
from plugrl_env_client.cli import main
from plugrl_env_client.supervision import supervisor

STUCK_WRITER = """
import threading
from plugrl_env_client.recording.formats.npz_files import NpzFiles

NpzFiles.commit = lambda self, finished: threading.Event().wait()
"""


@pytest.mark.slow
def test_a_process_with_a_stuck_recorder_ends_and_names_the_recorder(broken, tmp_path, capsys, monkeypatch):
    (tmp_path / "modules" / "stuck_writer.py").write_text(STUCK_WRITER)
    recording = "--import stuck_writer --recorder.format npz --recorder.required --recorder.envs 0 --hang-timeout 3"
    server, arguments = broken("raise", *recording.split(), at_step=1_000_000)
    from plugrl_env_client.recording.formats.npz_files import NpzFiles

    monkeypatch.setattr(NpzFiles, "commit", NpzFiles.commit)  # the module is imported in this process, too
    assert main(arguments) == 1
    server.wait()
    why = "client process 0 (envs 0 to 2): recording failed: the recorder has written nothing for 3 s (--hang-timeout)"
    error = capsys.readouterr().err
    assert error.splitlines()[-1] == f"plugrl-run-env-client: {why}"
    assert "hung" not in error
    summary = json.loads(Path("plugrl-client/run/summary.json").read_text())
    assert summary["outcome"] == f"failed ({why})"


SLOW_WRITER = """
from pathlib import Path
from plugrl_env_client.recording.formats.npz_files import NpzFiles
from plugrl_env_client.supervision import reporter

reporter.REPORT_SECONDS = 0.05
commit = NpzFiles.commit

def held(self, finished):
    Path("may_write").read_bytes()  # a FIFO: until somebody opens it for writing
    return commit(self, finished)

NpzFiles.commit = held
"""


def test_a_process_that_writes_its_last_episodes_is_waited_for(broken, tmp_path, capsys, monkeypatch):
    """It was told to end, and takes three times as long as one that does not write would be given."""
    from plugrl_env_client.recording.formats.npz_files import NpzFiles
    from plugrl_env_client.supervision import reporter

    (tmp_path / "modules" / "slow_writer.py").write_text(SLOW_WRITER)
    os.mkfifo("may_write")
    monkeypatch.setattr(NpzFiles, "commit", NpzFiles.commit)  # the module is imported in this process, too
    monkeypatch.setattr(reporter, "REPORT_SECONDS", reporter.REPORT_SECONDS)
    monkeypatch.setattr(supervisor, "GRACE_SECONDS", 0.5)
    asked, wait = [], supervisor._wait

    def waiting(children, seconds):
        wait(children, min(seconds, 0.05))
        if not asked and children[0].is_writing:
            asked.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGTERM)
        elif asked and time.monotonic() > asked[0] + 3 * supervisor.GRACE_SECONDS and Path("may_write").is_fifo():
            os.close(os.open("may_write", os.O_WRONLY))
            Path("may_write").unlink()
            Path("may_write").touch()

    monkeypatch.setattr(supervisor, "_wait", waiting)
    recording = "--import slow_writer --recorder.format npz --recorder.envs 0"
    _, arguments = broken("raise", *recording.split(), at_step=1_000_000)
    assert main(arguments) == 0
    error = capsys.readouterr().err
    assert "client process 0 (envs 0 to 2) writes what it has recorded; another signal ends it at once" in error
    assert "killed" not in error
    ended = json.loads(Path("plugrl-client/run/summary.json").read_text())
    assert [part["outcome"] for part in ended["processes"]] == ["interrupted", "interrupted"]
    assert ended["recording"]["episodes"] == len(list(Path("plugrl-client/run/recording/npz").iterdir())) >= 1
