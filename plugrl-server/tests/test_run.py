import contextlib
import dataclasses
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from plugrl_server import run as run_module
from plugrl_server.cli import main
from plugrl_server.training.metrics import read_rows

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch.utils.tensorboard's own

FOUR = ["dummy-policy", "default", "dummy", "default", "--port", "0"]
CLIENT = "plugrl-run-env-client dummy-v1 --num-envs 2 --quiet"
TEMPLATE = Path(__file__).parents[2] / "tests" / "end_to_end" / "plugins"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """An empty current folder, and Torch's threads as they were."""
    threads = torch.get_num_threads()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PLUGRL_API_KEY", raising=False)
    yield tmp_path
    torch.set_num_threads(threads)


@pytest.fixture
def run(capsys):
    """Runs the command line in this process; returns exit code, standard output and standard error."""

    def runner(*argv):
        code = 0
        try:
            main([*FOUR, *argv])
        except SystemExit as end:
            code = end.code
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return code, out, err

    return runner


def runs(folder):
    return folder / "checkpoints" / "dummy" / "dummy-policy"


# A run that ends well ------------------------------------------------------------------------------------------------


def test_a_run_leaves_its_folder_and_says_where(run, folder, monkeypatch):
    """Lesson 26, and the API key reaches the client and nothing on the disk."""
    monkeypatch.setenv("PLUGRL_API_KEY", "s3cret")
    code, out, err = run(
        *("--exp-name", "a", "--prefix", "p", "--suffix", "s", "--seed", "7", "--metadata", "team=red"),
        *("--algo.global-steps", "300", "--algo.learn-every", "100", "--algo.save-interval", "100"),
        *("--keep-checkpoints", "2", "--show-metric-table", "--client", CLIENT, "--client", "true"),
    )
    assert code == 0, err
    path = runs(folder) / "p-a-s"
    relative = path.relative_to(folder)
    assert f"run folder: {relative}" in out
    assert "finished: step 300" in out
    assert "received" in out
    assert "--resume --exp-name p-a-s" in out
    assert sorted(entry.name for entry in path.iterdir()) == [
        ".lock",
        "checkpoints",
        "clients",
        "config.json",
        "learning_curve.png",
        "metrics.jsonl",
        "tensorboard",
    ]
    config = json.loads((path / "config.json").read_text())
    assert config["seed"] == 7
    assert config["policy"]["module"] == "plugrl_server.policy.dummy.dummy_policy"
    assert config["policy"]["class"] == "DummyPolicy"
    assert config["algorithm"]["config"]["global_steps"] == 300
    assert config["run"]["api_key"] == "***"
    assert set(config["versions"]) >= {"python", "torch", "numpy", "plugrl-server"}
    assert config["command"][:2] == ["plugrl-run-server", "dummy-policy"]
    rows = list(read_rows(path / "metrics.jsonl"))
    assert [row["step"] for row in rows] == [100, 200, 300]
    assert all(row["time"] > 1e9 for row in rows)
    assert {"server/policy_version", "time/steps_per_second"} <= set(rows[0])
    assert sorted(entry.name for entry in (path / "checkpoints").iterdir()) == ["200", "300"]
    assert any((path / "tensorboard").iterdir())
    assert sorted(entry.name for entry in (path / "clients").iterdir()) == ["0.log", "1.log"]
    texts = [entry.read_text() for entry in (path / "config.json", path / "metrics.jsonl")]
    assert "s3cret" not in "".join([out, err, *texts])


def test_an_earlier_run_is_kept_resumed_or_replaced(run, folder):
    """Lessons 21 and 22."""
    steps = ("--exp-name", "a", "--client", CLIENT, "--algo.learn-every", "50")
    assert run(*steps, "--algo.global-steps", "100")[0] == 0
    path = runs(folder) / "a"

    code, out, err = run(*steps)
    assert (code, "already holds a run; --resume continues it, --overwrite replaces it" in err) == (2, True)
    code, _, err = run(*steps, "--resume")
    assert (code, "nothing left to do" in err, "raise --algo.global-steps" in err) == (1, True, True)
    code, _, err = run("--exp-name", "b", "--resume")
    assert (code, err) == (2, f"error: no run to resume at {path.relative_to(folder).parent}/b; runs there: a\n")
    code, _, err = run("--exp-name", "a", "--resume", "--seed", "12345", "--algo.global-steps", "150")
    assert (code, "--seed 12345 contradicts the run's seed" in err) == (2, True)

    with (path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 140, "time": 0}\n{"torn')
    code, out, err = run("--exp-name", "a", "--resume", "--client", CLIENT, "--algo.global-steps", "150")
    assert code == 0, err
    assert "changed since the run was saved: --algo.global-steps 150 (was 100)" in out
    assert "resuming at step 100" in out
    assert [row["step"] for row in read_rows(path / "metrics.jsonl")] == [50, 100, 150]
    assert json.loads((path / "config.json").read_text())["algorithm"]["config"]["learn_every"] == 50

    code, out, err = run(*steps, "--algo.global-steps", "50", "--overwrite")
    assert code == 0, err
    assert [row["step"] for row in read_rows(path / "metrics.jsonl")] == [50]
    assert sorted(entry.name for entry in (path / "checkpoints").iterdir()) == ["50"]

    next((path / "checkpoints" / "50").glob("model.safetensors")).write_bytes(b"x")
    code, _, err = run("--exp-name", "a", "--resume", "--algo.global-steps", "150")
    assert (code, "model.safetensors is damaged" in err) == (1, True)


def test_flags_that_cannot_go_with_the_checkpoint_are_named(capsys, folder):
    """Lesson 22."""
    words = ["gaussian-policy", "default", "ppo", "default", "--port", "0", "--exp-name", "a"]
    main(
        [
            *(*words, "--policy.hidden-sizes", "4", "--algo.global-steps", "64", "--algo.buffer-size", "64"),
            *("--client", "plugrl-run-env-client classic-v1 --env.name Pendulum-v1 --num-envs 4 --quiet"),
        ]
    )
    capsys.readouterr()
    with pytest.raises(SystemExit) as end:
        main([*words, "--resume", "--policy.obs-dim", "5"])
    _, err = capsys.readouterr()
    assert end.value.code == 2
    assert "changed flags: --policy.obs-dim 5 (was 3)" in err
    with pytest.raises(SystemExit) as end:
        main([*words, "--resume", "--policy.hidden-sizes", "5", "--algo.global-steps", "128"])
    out, err = capsys.readouterr()
    assert end.value.code == 2
    assert "changed since the run was saved: --policy.hidden-sizes 5 (was 4), --algo.global-steps 128 (was 64)" in out
    assert err == (
        "error: Checkpoint 64 does not fit this configuration: size mismatch for actor.0.weight: [4, 3] in the "
        "checkpoint, [5, 3] here\nchanged flags: --policy.hidden-sizes 5 (was 4), --algo.global-steps 128 (was 64)\n"
    )
    rows = list(read_rows(folder / "checkpoints/ppo/gaussian-policy/a/metrics.jsonl"))
    assert [row["step"] for row in rows] == [64]
    assert "losses/policy_loss" in rows[0]


def test_the_spaces_a_client_declared_are_kept(run, folder):
    code, _, err = run(
        *("--exp-name", "a", "--algo.global-steps", "20"), "--client", CLIENT + " --env.action-dim 3 --env.state-dim 5"
    )
    assert code == 0, err
    config = json.loads((runs(folder) / "a" / "config.json").read_text())
    assert config["declaration"]["action"]["shape"] == [3]
    assert next(iter(config["observation"]["states"].values()))["shape"] == [5]


# Clients -------------------------------------------------------------------------------------------------------------


def test_a_failed_client_fails_the_run_at_once_with_its_last_lines(run, folder):
    code, out, err = run("--exp-name", "a", "--client", "seq 1 30; echo boom; exit 3")
    assert code == 1
    assert "client 0 exited with 3: seq 1 30; echo boom; exit 3" in err
    assert "  | 12\n" in err
    assert "  | boom\n" in err
    assert "  | 11\n" not in err
    assert "clients failed: step 0" in out
    code, out, err = run("--exp-name", "a", "--client", "exit 4")
    assert (code, "client 0 exited with 4" in err) == (1, True), "a run that got nowhere must not block its name"


def test_clients_that_finish_early_end_the_run_well(run, folder):
    code, out, err = run("--exp-name", "a", "--client", CLIENT + " --num-steps 40")
    assert code == 0, err
    step = int(re.search(r"clients finished at step (\d+) of 1000", out).group(1))
    assert step > 0
    assert (runs(folder) / "a" / "checkpoints" / str(step)).is_dir()


def test_a_client_that_has_not_come_when_the_run_ends_is_ended_quietly(run):
    code, out, err = run("--algo.global-steps", "20", "--client", CLIENT, "--client", "exec sleep 600")
    assert code == 0, err
    assert "finished: step 20" in out
    assert "INFO client 1 had not connected and is ended with the run\n" in err
    assert "error" not in err


def test_a_client_that_does_not_leave_is_killed_and_fails_the_run(run, monkeypatch):
    supervisor, hasty = run_module.Supervisor, {"patience": 0.1, "term_patience": 0.1}
    monkeypatch.setattr(run_module, "Supervisor", lambda *args, **options: supervisor(*args, **{**options, **hasty}))
    stubborn = f"{CLIENT} & trap '' TERM; echo staying; while :; do sleep 0.05; done"
    code, out, err = run("--algo.global-steps", "20", "--client", stubborn)
    assert code == 1
    assert "finished: step 20" in out
    assert "client 0 did not exit by itself and was killed" in err


# Starts that fail ----------------------------------------------------------------------------------------------------


def test_a_port_in_use_is_named_and_no_folder_is_left(run, folder):
    """Lesson 21."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, _, err = run("--port", str(port), "--exp-name", "a")
    assert code == 1
    assert f"127.0.0.1:{port}" in err
    assert "--port 0 takes any free port" in err
    assert list(folder.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_named(run, folder):
    (folder / "base").write_text("")
    code, _, err = run("--checkpoint-base-dir", "base", "--client", f"touch {folder}/started")
    assert code == 1
    assert "cannot be written: Not a directory" in err
    assert not (folder / "started").exists()


@pytest.fixture
def unregistered():
    from plugrl_server.algorithm.registration import ALGORITHMS, register_algo_config

    @register_algo_config("your-algo")
    @dataclasses.dataclass
    class Config:
        rate: float = 0.5

    yield
    del ALGORITHMS._entries["your-algo"]


def test_a_class_that_was_never_imported_is_told_as_the_guide_says(unregistered, capsys, folder):
    with pytest.raises(SystemExit) as end:
        main(["dummy-policy", "default", "your-algo", "default"])
    out, err = capsys.readouterr()
    assert end.value.code == 1
    assert "algorithm your-algo default: rate=0.5" in out
    assert err.splitlines()[0] == "KeyError: 'Algorithm your-algo is not registered.'"
    assert "the module of its class was never imported" in err
    assert "Traceback" not in err
    assert list(folder.iterdir()) == []


# Processes -----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def server(folder, *argv, name="run"):
    """A server process; yields it once its log says that it listens. It is gone at the end of the block."""
    command = [sys.executable, "-m", "plugrl_server.cli", *FOUR, "--exp-name", name, *argv]
    log = folder / "server.log"
    with log.open("w") as file:
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, cwd=folder)
    try:
        yield process, log
    finally:
        process.kill()
        process.wait()


def wait_for(condition, what, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.02)


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def first_number(path):
    return int(path.read_text().split()[0]) if path.exists() and path.read_text().strip() else None


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_the_first_signal_stops_cleanly_with_a_checkpoint(folder, number):
    """Lesson 9."""
    command = f"echo $$ > {folder}/pid; exec {CLIENT}"
    endless = ("--algo.global-steps", "None", "--algo.learn-every", "10")
    with server(folder, *endless, "--client", command) as (process, log):
        metrics = runs(folder) / "run" / "metrics.jsonl"
        wait_for(lambda: metrics.exists() and metrics.stat().st_size, "no learn step")
        process.send_signal(number)
        assert process.wait(30) == 0, log.read_text()
    text = log.read_text()
    assert f"{number.name}: stopping cleanly with a checkpoint; once more stops at once" in text
    assert "interrupted: step " in text
    (saved,) = (runs(folder) / "run" / "checkpoints").iterdir()
    assert int(saved.name) > 0
    assert not alive(first_number(folder / "pid"))


def test_the_second_signal_stops_at_once_and_takes_the_clients_along(folder):
    """Lessons 9 and 10: a learn step that takes a minute holds nobody up."""
    command = f"echo $$ > {folder}/pid; exec {CLIENT}"
    slow = ("--algo.learn-every", "2", "--algo.learn-sleep-ms", "60000", "--log-level", "debug")
    with server(folder, *slow, "--client", command) as (process, log):
        wait_for(lambda: "learn step at step 2 begins" in log.read_text(), "no learn step")
        process.send_signal(signal.SIGINT)
        wait_for(lambda: "stopping cleanly" in log.read_text(), "first signal not heard")
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 130, log.read_text()
    assert "SIGINT: stopping at once" in log.read_text()
    assert not alive(first_number(folder / "pid"))


def test_the_client_of_a_killed_server_ends(folder):
    endless = ("--algo.global-steps", "None", "--algo.learn-every", "10")
    with server(folder, *endless, "--client", f"echo $$ > {folder}/pid; exec {CLIENT}") as (process, _):
        metrics = runs(folder) / "run" / "metrics.jsonl"
        wait_for(lambda: metrics.exists() and metrics.stat().st_size, "no learn step")
        client = os.pidfd_open(first_number(folder / "pid"))
        process.kill()
    ended, _, _ = select.select([client], [], [], 30)
    os.close(client)
    assert ended, (runs(folder) / "run" / "clients" / "0.log").read_text()


def test_a_module_of_ones_own_is_found_listed_and_run(folder):
    """The guide's own forms: `--import`, and an import before `main()`."""
    environment = {**os.environ, "PYTHONPATH": str(TEMPLATE)}
    words = ["dummy-policy", "default", "your-algo", "default"]

    def call(*command):
        return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder, check=False)

    program = [sys.executable, "-m", "plugrl_server.cli"]
    listed = call(*program, "--import", "my_pkg.plugrl_algorithms", "dummy-policy", "default", "--help")
    assert "your-algo" in listed.stdout
    code = "import my_pkg.plugrl_algorithms; from plugrl_server.cli import main; main()"
    done = call(
        *(sys.executable, "-c", code, *words, "--port", "0", "--algo.global-steps", "20", "--client", CLIENT),
        *("--exp-name", "own"),
    )
    assert done.returncode == 0, done.stderr
    assert "finished: step 20" in done.stdout
    config = json.loads((folder / "checkpoints/your-algo/dummy-policy/own/config.json").read_text())
    assert config["algorithm"]["module"] == "my_pkg.plugrl_algorithms"
