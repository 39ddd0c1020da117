"""A real process whose recorder is stuck: it is not taken for an env that hangs, and the recorder is named."""

import json
from pathlib import Path

import pytest
from plugrl_env_client.cli import main

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
