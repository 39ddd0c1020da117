"""Several processes: shares, failures told, and the end of all (field lesson 10)."""

import json
import threading

from plugrl_env_client.cli import main
from plugrl_env_client.supervision import supervisor


def dummy(server, *flags):
    return ["dummy-v1", "--server-port", str(server.port), "--num-procs", "2", "--num-envs", "5", *flags]


def test_each_process_runs_its_share(fake_server, actions, capsys, tmp_path):
    def script(peer):
        peer.greet()
        peer.serve(actions(4, 7))

    server = fake_server(script)
    assert main(dummy(server, "--num-steps", "40", "--exp-name", "two")) == 0
    assert sorted(len(peer.infers[0]["env_indices"]) for peer in server.peers) == [2, 3]
    folder = tmp_path / "plugrl-client" / "two"
    summary = json.loads((folder / "summary.json").read_text())
    server.wait()
    assert summary["feedback_rows"] == server.feedback_rows
    assert summary["steps"] >= 40
    assert len(summary["connections"]) == 2
    assert {path.name for path in folder.iterdir()} == {"config.json", "summary.json", "0.log", "1.log"}
    assert capsys.readouterr().out.startswith("ran what was asked for: ")


def test_a_childs_own_failure_is_told_in_its_words(fake_server, capsys):
    server = fake_server(lambda peer: peer.close(1008, "plugrl-server-reject: not you"))
    assert main(dummy(server)) == 1
    error = capsys.readouterr().err
    assert "): ws://127.0.0.1:" in error
    assert "plugrl-server-reject: not you" in error


def test_envs_that_cannot_be_made_are_told_too(fake_server, capsys):
    server = fake_server(lambda peer: None)
    assert main(["classic-v1", "--env.name", "Nope-v1", *dummy(server)[1:]]) == 2
    out, err = capsys.readouterr()
    assert "--env.name Nope-v1" in err
    assert out == ""


def test_a_child_that_has_not_heard_of_the_servers_end_is_ended(fake_server, actions, capsys, monkeypatch):
    monkeypatch.setattr(supervisor, "LINGER_SECONDS", 0.1)
    both = threading.Barrier(2)

    def script(peer):
        peer.greet()
        peer.serve(actions(4, 7), exchanges=2)
        if both.wait(30) == 0:
            peer.stop()
        else:
            peer.infer()
            peer.feedback()  # which never comes: no action was sent

    server = fake_server(script)
    assert main(dummy(server)) == 0
    server.wait()
    assert capsys.readouterr().out.startswith("the server ended the run: ")
    assert sorted(peer.closed_with[0] for peer in server.peers) == [1000, 1001]


def test_the_processes_are_shown_now_and_then(fake_server, actions, capsys, monkeypatch):
    monkeypatch.setattr("plugrl_env_client.reporting.progress._Plain.interval", 0.01)
    served = threading.Event()

    def script(peer):
        peer.greet()
        while not served.is_set():
            peer.act(actions(4, 7)(peer.infer()))
            peer.feedback()
        peer.stop()

    def look(processes):
        shown.append([(process.state, process.snapshot.steps) for process in processes])
        if all(state == "running" and steps for state, steps in shown[-1]):
            served.set()

    shown = []
    monkeypatch.setattr("plugrl_env_client.reporting.progress._Plain.show", lambda self, processes: look(processes))
    assert main(dummy(fake_server(script))) == 0
    assert served.is_set()
    assert shown[0] == [("starting", 0), ("starting", 0)]


def test_a_process_that_cannot_be_started_is_a_failure(fake_server, capsys, monkeypatch):
    def refuse(self):
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr("multiprocessing.context.SpawnProcess.start", refuse)
    assert main(dummy(fake_server(lambda peer: None))) == 1
    error = capsys.readouterr().err
    assert "client process 0 (envs 0 to 2) cannot be started: Resource temporarily unavailable" in error


def test_the_logs_of_a_run_are_its_own(fake_server, actions, tmp_path):
    def script(peer):
        peer.greet()
        peer.serve(actions(4, 7))

    folder = tmp_path / "plugrl-client" / "two"
    folder.mkdir(parents=True)
    for name in ("0.log", "7.log", "notes.log"):
        (folder / name).write_text("of an earlier run")
    assert main(dummy(fake_server(script), "--num-steps", "40", "--exp-name", "two")) == 0
    assert "earlier" not in (folder / "0.log").read_text()
    assert not (folder / "7.log").exists()
    assert (folder / "notes.log").exists()


def test_without_a_folder_the_logs_of_a_good_run_leave_no_trace(fake_server, actions, tmp_path, monkeypatch):
    def script(peer):
        peer.greet()
        peer.serve(actions(4, 7))

    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    assert main(dummy(fake_server(script), "--num-steps", "40")) == 0
    assert list((tmp_path / "temporary").iterdir()) == []


def test_nor_do_those_of_a_mistake_in_the_flags(tmp_path, monkeypatch):
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    arguments = ["classic-v1", "--env.name", "Nope-v1", "--num-envs", "2", "--num-procs", "2", "--server-port", "1"]
    assert main(arguments) == 2
    assert list((tmp_path / "temporary").iterdir()) == []
