"""The command line: listing, help, mistakes, exit codes, signals."""

import json
import re
import resource
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest
from plugrl_env_client import registration
from plugrl_env_client.cli import main
from plugrl_env_client.options import OptionError
from plugrl_env_client.registration import families

COMMAND = [sys.executable, "-m", "plugrl_env_client.cli"]


@pytest.fixture(autouse=True)
def _somewhere_else(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("SERVER_HOST", "SERVER_PORT", "API_KEY", "CLIENT_OFFSET"):
        monkeypatch.delenv(f"PLUGRL_{name}", raising=False)


def serving(fake_server, actions, exchanges=30, end="stop"):
    def script(peer):
        peer.greet()
        peer.serve(actions(4, 7), exchanges=exchanges)
        getattr(peer, end)()

    return fake_server(script)


def dummy(server, *flags):
    return ["dummy-v1", "--server-port", str(server.port), *flags]


def test_help_lists_the_families(capsys):
    assert main(["--help"]) == 0
    listing = capsys.readouterr().out
    for uid in ("classic-v1", "mujoco-v1", "gym-v1", "dummy-v1", "probe-v1"):
        assert f"\n  {uid}" in listing


def test_without_arguments_the_families_are_listed_and_it_is_a_mistake(capsys):
    assert main([]) == 2
    assert "probe-v1" in capsys.readouterr().out


def test_lesson_25_a_family_that_is_not_installed_is_marked(capsys, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    main(["--help"])
    listing = capsys.readouterr().out
    for family in families():
        marked = re.search(rf"^  {family.uid} .*\[not installed: (.*)\]$", listing, re.MULTILINE)
        assert (marked and marked[1]) == (family.install_command if family.needs else None)


@pytest.mark.parametrize("arguments", [["--help"], ["classic-v1", "--help"]])
def test_lesson_23_help_answers_within_a_second_and_a_half(arguments):
    def processor_seconds():
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    before = processor_seconds()
    subprocess.run([*COMMAND, *arguments], check=True, capture_output=True)
    assert processor_seconds() - before < 1.5


def test_none_is_read_as_the_docs_write_it(capsys):
    assert main(["dummy-v1", "--num-steps", "none", "--num-envs", "0"]) == 2
    assert "--num-envs 0" in capsys.readouterr().err


def test_every_flag_of_the_issue_is_there(capsys):
    with pytest.raises(SystemExit) as left:
        main(["gym-v1", "--help"])
    assert left.value.code == 0
    text = capsys.readouterr().out
    flags = """
        --server-host --server-port --num-envs --num-episodes --num-steps --num-procs --num-groups --restart-failed
        --hang-timeout --viewer --exp-name --reuse-feedback-obs
        --no-reuse-feedback-obs --reconnect-on-server-stop --connect-timeout --action-timeout --max-reconnects
        --max-frame-mib --api-key --log-level --quiet --import --runner.replan-steps --runner.max-episode-steps
        --runner.seed --runner.fps --runner.action-deadline --runner.on-stale --env.id --env.kwargs --env.info-keys
        --recorder.format --recorder.folder --recorder.every --recorder.envs --recorder.image-keys --recorder.fps
        --recorder.overflow --recorder.queue-mib --recorder.required --recorder.lerobot-images
    """
    for flag in flags.split():
        assert flag in text


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nothing-v1"], "there is no env nothing-v1"),
        (["clasic-v1"], "did you mean classic-v1"),
        (["--num-envs", "3"], "expected an env before --num-envs"),
        (["dummy-v1", "--num-envs", "0"], "--num-envs 0: expected at least 1"),
        (["dummy-v1", "--recorder.every", "2"], "--recorder.every: expected --recorder.format too"),
        (["dummy-v1", "--recorder.format", "npz"], "expected --recorder.folder or --exp-name"),
        (["dummy-v1", "--connect-timeout", "nan"], "--connect-timeout nan: expected a positive, finite number"),
        (["dummy-v1", "--server-host", "http://x"], "--server-host 'http://x'"),
        (["dummy-v1", "--env.state-dim", "0"], "--env.state-dim 0: expected at least 1"),
        (["classic-v1", "--env.name", "Pendulum"], "did you mean Pendulum-v1"),
        (["gym-v1", "--env.id", "Nothing-v0"], "cannot make Nothing-v0"),
        (["--import", "no_such_module_here", "dummy-v1"], "--import no_such_module_here"),
        (["dummy-v1", "--import"], "--import: expected a module"),
    ],
)
def test_lesson_28_a_mistake_is_named_without_a_traceback(capsys, arguments, says):
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert error.splitlines()[-1].startswith("plugrl-run-env-client: ")
    assert says in error
    assert "Traceback" not in error


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("dummy-v1 --recorder.format frames --recorder.folder x", "--recorder.format frames: dummy-v1 shows no images"),
        ("dummy-v1 --recorder.format npz --recorder.folder x --recorder.image-keys foo", "--recorder.image-keys foo"),
        ("classic-v1 --runner.fps 10 --runner.on-stale zero", "--runner.on-stale zero: CartPole-v1 takes Discrete(2)"),
        (
            "classic-v1 --env.vectorization own --runner.max-episode-steps 5",
            "--runner.max-episode-steps: CartPole-v1 resets itself",
        ),
        ("classic-v1 --env.image-keys foo", "--env.image-keys foo: the env has no such entry; it has states: obs"),
        ("classic-v1 --env.name Pendulum", "--env.name Pendulum: did you mean Pendulum-v1"),
        ("gym-v1 --env.id Nothing-v0", "cannot make Nothing-v0"),
        ("dummy-v1 --env.info-keys a", "--env.info-keys a: dummy-v1 has no info to send"),
    ],
)
@pytest.mark.parametrize("more", ["", " --num-envs 2 --num-groups 2", " --num-envs 2 --num-procs 2"])
def test_flags_that_do_not_go_with_the_env_are_a_mistake_too(capsys, arguments, says, more):
    assert main((arguments + more).split()) == 2
    out, err = capsys.readouterr()
    assert out == "", "there is nothing to sum up"
    assert sum(says in line for line in err.splitlines()) == 1
    assert says in err.splitlines()[-1]
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("variable", "value"), [("SERVER_PORT", "many"), ("SERVER_PORT", "0"), ("CLIENT_OFFSET", "first")]
)
def test_a_mistake_in_a_variable_is_one_line(capsys, monkeypatch, variable, value):
    monkeypatch.setenv(f"PLUGRL_{variable}", value)
    assert main(["dummy-v1"]) == 2
    (error,) = capsys.readouterr().err.splitlines()
    assert error.startswith(f"plugrl-run-env-client: PLUGRL_{variable}=")


@pytest.mark.parametrize("arguments", [["dummy-v1", "--no-such-flag"], ["dummy-v1", "--num-envs", "many"], ["gym-v1"]])
def test_an_unknown_flag_a_wrong_type_or_a_missing_value_is_usage(capsys, arguments):
    with pytest.raises(SystemExit) as left:
        main(arguments)
    assert left.value.code == 2


def test_a_run_ends_with_its_server(fake_server, actions, capsys):
    assert main(dummy(serving(fake_server, actions), "--num-envs", "2")) == 0
    out, err = capsys.readouterr()
    assert out.startswith("the server ended the run: 240 env steps in ")
    assert "feedback: 60 rows sent over 1 connection, 0 unconfirmed" in out
    assert "dummy-v1: 2 envs for ws://127.0.0.1:" in err
    assert "seed " in err


def test_a_limit_ends_the_run(fake_server, actions, capsys):
    assert main(dummy(serving(fake_server, actions, exchanges=None), "--num-episodes", "1")) == 0
    assert capsys.readouterr().out.startswith("ran what was asked for: 100 env steps")


def test_quiet_prints_nothing_but_errors(fake_server, actions, capsys):
    assert main(dummy(serving(fake_server, actions), "--quiet")) == 0
    assert capsys.readouterr() == ("", "")
    with_error = fake_server(lambda peer: peer.close(1008, "plugrl-server-reject: no"))
    assert main(dummy(with_error, "--quiet")) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert "plugrl-server-reject: no" in err


@pytest.mark.parametrize(
    ("code", "reason", "exit_code"),
    [
        (1001, "plugrl-server-stop", 0),
        (1008, "plugrl-server-reject: action_dim 3, this run has 6", 1),
        (1009, "too big", 1),
    ],
)
def test_exit_codes_of_final_closes(fake_server, capsys, code, reason, exit_code):
    assert main(dummy(fake_server(lambda peer: peer.close(code, reason)))) == exit_code
    assert exit_code == 0 or reason in capsys.readouterr().err


def test_a_refused_key_is_final(fake_server, capsys):
    server = fake_server(lambda peer: None, process_request=lambda connection, request: connection.respond(401, ""))
    assert main(dummy(server)) == 1
    assert "HTTP 401: the server wants an --api-key" in capsys.readouterr().err


def test_a_text_frame_is_fatal(fake_server, capsys):
    def script(peer):
        peer.greet()
        peer.infer()
        peer.socket.send("text")

    assert main(dummy(fake_server(script))) == 1
    assert "expected binary, got text" in capsys.readouterr().err


def test_lesson_27_a_client_without_a_server_says_whom_it_tries_and_how_to_start_one(capsys):
    assert main(["dummy-v1", "--server-port", "1", "--max-reconnects", "1"]) == 1
    error = capsys.readouterr().err
    assert "ws://127.0.0.1:1: connecting: connection refused (is a server running? Start one with: " in error
    assert "attempt 1 of 1 in" in error
    assert "gave up after --max-reconnects 1" in error


def test_actions_that_do_not_fit_are_named(fake_server, actions, capsys):
    server = serving(fake_server, actions)
    assert main(["classic-v1", "--server-port", str(server.port)]) == 1
    assert "actions of shape (7,), CartPole-v1 takes Discrete(2)" in capsys.readouterr().err


def test_the_environment_gives_host_port_and_key(fake_server, actions, monkeypatch):
    server = serving(fake_server, actions)
    monkeypatch.setenv("PLUGRL_SERVER_HOST", "127.0.0.1")
    monkeypatch.setenv("PLUGRL_SERVER_PORT", str(server.port))
    monkeypatch.setenv("PLUGRL_API_KEY", "from-the-environment")
    assert main(["dummy-v1"]) == 0
    assert server.peers[0].headers["Authorization"] == "Api-Key from-the-environment"


def test_lesson_26_a_run_with_a_name_leaves_its_configuration_and_summary(fake_server, actions, tmp_path):
    server = serving(fake_server, actions)
    assert main(dummy(server, "--exp-name", "first", "--runner.seed", "7", "--env.state-dim", "5")) == 0
    folder = tmp_path / "plugrl-client" / "first"
    config = json.loads((folder / "config.json").read_text())
    assert (config["seed"], config["options"]["env"]["state_dim"]) == (7, 5)
    summary = json.loads((folder / "summary.json").read_text())
    assert (summary["exit_code"], summary["steps"], summary["feedback_rows"]) == (0, 120, 30)


@pytest.mark.parametrize(
    ("flags", "code", "says"),
    [
        (["--env.state-dim", "0"], 2, "--env.state-dim 0: expected at least 1"),
        (["--server-port", "1", "--max-reconnects", "0"], 1, "gave up after --max-reconnects 0"),
    ],
)
def test_a_run_that_fails_early_leaves_its_own_summary(fake_server, actions, tmp_path, capsys, flags, code, says):
    assert main(dummy(serving(fake_server, actions), "--exp-name", "name")) == 0
    capsys.readouterr()
    assert main(["dummy-v1", "--exp-name", "name", *flags]) == code
    out, err = capsys.readouterr()
    summary = json.loads((tmp_path / "plugrl-client" / "name" / "summary.json").read_text())
    assert (summary["exit_code"], summary["steps"]) == (code, 0)
    assert says in summary["outcome"]
    assert re.match(f"plugrl-run-env-client: .*{re.escape(says)}", err.splitlines()[-1])
    assert ("failed: 0 env steps" in out) == (code == 1), "a mistake has no steps to count"


def test_a_folder_that_cannot_be_made_is_named(tmp_path, capsys):
    (tmp_path / "plugrl-client").touch()
    assert main(["dummy-v1", "--exp-name", "name"]) == 1
    (error,) = capsys.readouterr().err.splitlines()
    assert error == "plugrl-run-env-client: --exp-name name: plugrl-client/name cannot be written: Not a directory"


def test_a_summary_that_cannot_be_kept_is_on_the_screen(fake_server, actions, capsys, monkeypatch):
    def full(made, path):
        if path.name == "summary.json":
            raise OSError(28, "No space left on device")

    monkeypatch.setattr("plugrl_env_client.reporting.records.publish", full)
    assert main(dummy(serving(fake_server, actions), "--exp-name", "name")) == 1
    out, err = capsys.readouterr()
    assert out.startswith("the server ended the run: 120 env steps in ")
    assert err.splitlines()[-1].endswith("plugrl-client/name cannot be written: No space left on device")


def test_a_run_with_a_name_keeps_its_recordings_too(fake_server, actions, tmp_path, capsys):
    server = serving(fake_server, actions)
    assert (
        main(dummy(server, "--exp-name", "kept", "--recorder.format", "npz", "--runner.max-episode-steps", "40")) == 0
    )
    folder = tmp_path / "plugrl-client" / "kept"
    names = [f"env-0000_episode-{number:06d}.npz" for number in range(3)]
    assert sorted(path.name for path in (folder / "recording" / "npz").iterdir()) == names
    recorded = json.loads((folder / "summary.json").read_text())["recording"]
    assert (recorded["episodes"], recorded["frames"], recorded["dropped_episodes"]) == (3, 120, 0)
    assert "recorded: 3 episodes (120 frames, " in capsys.readouterr().out


def test_a_drawn_seed_is_recorded_and_repeats_the_run(fake_server, tmp_path):
    def script(peer):
        peer.greet()
        infer = peer.infer()
        seen.append(infer["data"]["states"]["obs"].tolist())
        peer.act(np.zeros((1, 1), np.int64))
        peer.feedback()
        peer.stop()

    seen = []
    server = fake_server(script)
    arguments = ["classic-v1", "--server-port", str(server.port)]
    main([*arguments, "--exp-name", "drawn"])
    seed = json.loads((tmp_path / "plugrl-client" / "drawn" / "config.json").read_text())["seed"]
    main([*arguments, "--runner.seed", str(seed)])
    main(arguments)
    assert seen[0] == seen[1] != seen[2]


OWN_ENV = """
import dataclasses
import numpy as np
from plugrl_env_client.envs.base_env import BaseEnv, BaseEnvConfig, Observation, Step
from plugrl_env_client.registration import register_env, register_env_config

@register_env_config("arm-v1")
@dataclasses.dataclass
class RobotConfig(BaseEnvConfig):
    speed: float = 1.0
    '''How fast it goes.'''

@register_env("arm-v1")
class Robot(BaseEnv):
    '''A robot of one's own.'''
    def __init__(self, config, num_envs):
        self.num_envs = num_envs
        self.at = np.zeros((num_envs, 1))
        self.speed = config.speed
    def reset(self, seed):
        return self.reset_indices(np.arange(self.num_envs))
    def reset_indices(self, indices):
        self.at[indices] = 0
        return self.show()
    def step(self, actions):
        self.at += self.speed
        done = self.at[:, 0] >= 10
        return Step(self.show(), np.ones(self.num_envs), done, np.zeros_like(done), {})
    def show(self):
        return Observation(images={}, states={"at": self.at}, text=[""] * self.num_envs)
"""


def test_an_env_of_ones_own_runs_by_import(fake_server, actions, tmp_path, monkeypatch, capsys):
    (tmp_path / "my_robot.py").write_text(OWN_ENV)
    monkeypatch.syspath_prepend(tmp_path)
    for table in ("_factories", "_configs"):  # what is registered here is forgotten after the test
        monkeypatch.setattr(registration, table, dict(getattr(registration, table)))
    assert main(["--import", "my_robot", "--help"]) == 0
    assert re.search(r"arm-v1 +A robot of one's own\.", capsys.readouterr().out)
    server = serving(fake_server, actions)
    assert main(["arm-v1", "--import=my_robot", "--server-port", str(server.port), "--env.speed", "2.5"]) == 0
    assert server.peers[0].infers[1]["data"]["states"]["at"].tolist() == [[0.0]]
    assert server.peers[0].feedbacks[0]["data"]["rewards"].tolist() == [4.0]


def start(*arguments):
    return subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_lesson_10_a_signal_ends_a_run_with_a_closing_handshake(fake_server, actions, number):
    """Once between steps, and once while the client waits for actions that never come."""
    running = threading.Event()
    codes = []

    def script(peer):
        peer.greet()
        peer.serve(actions(4, 7), exchanges=2)
        if number is signal.SIGINT:
            peer.infer()
        running.set()
        try:
            peer.serve(actions(4, 7))
        finally:
            codes.append(peer.closed_with[0])

    server = fake_server(script)
    client = start(*dummy(server))
    assert running.wait(20)
    client.send_signal(number)
    out, err = client.communicate(timeout=20)
    assert client.returncode == 0, err
    assert out.startswith("interrupted: ")
    server.wait()
    assert codes == [1000]


@pytest.mark.parametrize(("flags", "supervised"), [([], False), (["--hang-timeout", "120"], True)])
def test_one_process_is_looked_after_where_that_is_asked_for(capsys, monkeypatch, flags, supervised):
    def supervise(run, **_):
        calls.append(run.options.hang_seconds)
        raise OptionError("enough")

    calls = []
    monkeypatch.setattr("plugrl_env_client.cli.supervise", supervise)
    main(["dummy-v1", "--server-port", "1", "--max-reconnects", "0", *flags])
    assert calls == [120.0] * supervised


def test_a_ctrl_c_before_the_run_has_begun_is_no_failure(capsys, monkeypatch):
    def interrupted(modules):
        raise KeyboardInterrupt

    monkeypatch.setattr("plugrl_env_client.cli.import_modules", interrupted)
    assert main(["dummy-v1"]) == 0
    assert capsys.readouterr().err == "plugrl-run-env-client: interrupted\n"


def test_a_signal_ends_the_wait_for_a_server():
    client = start("dummy-v1", "--server-port", "1")
    for line in client.stderr:
        if "attempt 3" in line:
            break
    client.send_signal(signal.SIGINT)
    assert client.wait(20) == 0
    client.communicate()
