"""Flags, defaults from the environment, and every check by name."""

import dataclasses

import pytest
import tyro
from plugrl_env_client.envs.dummy_v1 import DummyConfig
from plugrl_env_client.envs.gym_v1 import GymConfig
from plugrl_env_client.link.address import Address
from plugrl_env_client.options import (
    ClientOptions,
    OptionError,
    RunnerOptions,
    client_offset,
    options_type,
    reading_none,
    resolved_api_key,
)


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch):
    for name in ("SERVER_HOST", "SERVER_PORT", "API_KEY", "CLIENT_OFFSET"):
        monkeypatch.delenv(f"PLUGRL_{name}", raising=False)


def test_the_defaults_work():
    options = ClientOptions()
    options.check()
    assert options.address == Address("127.0.0.1", 8000)
    assert (options.num_envs, options.num_procs, options.num_steps, options.num_episodes) == (1, 1, None, None)
    assert (options.max_reconnects, options.max_frame_mib, options.reuse_feedback_obs) == (20, 256, True)
    assert (options.action_timeout, options.folder) == (None, None)
    assert (resolved_api_key(options), client_offset()) == (None, 0)


def test_a_server_gives_defaults_through_the_environment(monkeypatch):
    monkeypatch.setenv("PLUGRL_SERVER_HOST", "::1")
    monkeypatch.setenv("PLUGRL_SERVER_PORT", "4711")
    monkeypatch.setenv("PLUGRL_API_KEY", "k")
    monkeypatch.setenv("PLUGRL_CLIENT_OFFSET", "3")
    options = ClientOptions()
    assert options.address == Address("::1", 4711)
    assert options.api_key is None, "help would print it"
    assert (resolved_api_key(options), resolved_api_key(ClientOptions(api_key="own"))) == ("k", "own")
    assert client_offset() == 3


@pytest.mark.parametrize(
    ("name", "read"), [("PLUGRL_SERVER_PORT", ClientOptions), ("PLUGRL_CLIENT_OFFSET", client_offset)]
)
def test_a_variable_that_is_no_number_is_named(monkeypatch, name, read):
    monkeypatch.setenv(name, "many")
    with pytest.raises(OptionError, match=f"{name}='many' in the environment: expected a whole number"):
        read()


@pytest.mark.parametrize("port", ["0", "-1", "65536"])
def test_a_variable_that_is_no_port_is_named(monkeypatch, port):
    monkeypatch.setenv("PLUGRL_SERVER_PORT", port)
    with pytest.raises(OptionError, match=f"PLUGRL_SERVER_PORT={port} in the environment: expected 1 to 65535"):
        ClientOptions()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"restart_failed": -1}, "--restart-failed -1: expected at least 0"),
        ({"hang_timeout": 0.0}, "--hang-timeout 0: expected a positive, finite number"),
        ({"runner": RunnerOptions(on_stale="zero")}, "--runner.on-stale zero: only with --runner.fps"),
        (
            {"runner": RunnerOptions(fps=0.2), "hang_timeout": 3.0},
            "--hang-timeout 3: expected at least two periods of --runner.fps 0.2, 10 s",
        ),
        ({"runner": RunnerOptions(action_deadline=1.0)}, "--runner.action-deadline 1.0: only with --runner.fps"),
        ({"runner": RunnerOptions(fps=0.0)}, "--runner.fps 0: expected 0.1 to 1,000 steps a second"),
        ({"runner": RunnerOptions(fps=float("nan"))}, "--runner.fps nan: expected 0.1"),
        ({"runner": RunnerOptions(fps=10.0, action_deadline=-1.0)}, "--runner.action-deadline -1: expected a positive"),
        (
            {"runner": RunnerOptions(fps=10.0, action_deadline=0.05)},
            "--runner.action-deadline 0.05: expected at least one period of --runner.fps 10, 0.1 s",
        ),
        (
            {"num_envs": 4, "num_groups": 2, "runner": RunnerOptions(fps=10.0)},
            "--runner.fps with --num-envs 4: envs of one group wait for each other's actions",
        ),
        ({"num_envs": 0}, "--num-envs 0: expected at least 1 and at most 65536"),
        ({"num_envs": 65_537}, "--num-envs 65537"),
        ({"num_procs": 0}, "--num-procs 0: expected at least 1"),
        ({"num_procs": 2}, "--num-procs 2: more than --num-envs 1"),
        ({"num_groups": 0}, "--num-groups 0: expected at least 1"),
        ({"num_envs": 3, "num_groups": 4}, "--num-groups 4: more than --num-envs 3"),
        ({"num_envs": 5, "num_procs": 2, "num_groups": 3}, "--num-groups 3 in each of --num-procs 2: more than"),
        ({"num_envs": 2, "num_procs": 2, "num_steps": 1}, "--num-steps 1: .* 2, to be shared by --num-procs 2$"),
        (
            {"num_envs": 4, "num_procs": 2, "num_groups": 2, "num_steps": 3},
            "--num-steps 3: expected at least 4, to be shared by --num-procs 2 times --num-groups 2",
        ),
        ({"num_envs": 4, "num_groups": 2, "spin_us": 100.0}, "--spin-us 100 with --num-groups 2: a group that spins"),
        ({"num_steps": 0}, "--num-steps 0"),
        ({"num_episodes": 0}, "--num-episodes 0"),
        (
            {"num_envs": 4, "num_groups": 4, "num_episodes": 3},
            "--num-episodes 3: .* shared by --num-groups 4$",
        ),
        ({"max_reconnects": -1}, "--max-reconnects -1: expected at least 0"),
        ({"max_frame_mib": 0}, "--max-frame-mib 0"),
        ({"spin_us": -1.0}, "--spin-us -1: expected auto, or 0 to 1,000,000"),
        ({"spin_us": float("nan")}, "--spin-us nan"),
        ({"runner": RunnerOptions(replan_steps=0)}, r"--runner\.replan-steps 0"),
        ({"runner": RunnerOptions(max_episode_steps=0)}, r"--runner\.max-episode-steps 0"),
        ({"runner": RunnerOptions(seed=-1)}, r"--runner\.seed -1: expected at least 0"),
        ({"server_host": "http://x"}, "--server-host"),
        ({"server_port": 70_000}, "--server-port 70000"),
        ({"exp_name": "../elsewhere"}, "--exp-name '../elsewhere': expected a plain folder name"),
        ({"exp_name": ""}, "--exp-name ''"),
    ],
)
def test_every_flag_is_checked_by_name(change, says):
    with pytest.raises(OptionError, match=says):
        dataclasses.replace(ClientOptions(), **change).check()


@pytest.mark.parametrize("flag", ["connect_timeout", "action_timeout"])
@pytest.mark.parametrize("value", [0.0, -1.0, float("inf"), float("nan")])
def test_lesson_6_timeouts_are_positive_and_finite(flag, value):
    with pytest.raises(
        OptionError, match=f"--{flag.replace('_', '-')} .*expected a positive, finite number of seconds"
    ):
        dataclasses.replace(ClientOptions(), **{flag: value}).check()


def test_the_flags_of_a_family_join_the_others():
    assert options_type(DummyConfig)().env == DummyConfig()
    fields = {field.name: field for field in dataclasses.fields(options_type(GymConfig))}
    assert fields["env"].default_factory is dataclasses.MISSING, "gym-v1 has a flag without a default"


def test_a_run_with_a_name_has_a_folder():
    assert ClientOptions(exp_name="first").folder.parts == ("plugrl-client", "first")


@pytest.mark.parametrize(
    ("change", "supervised", "seconds"),
    [
        ({}, False, 120.0),
        ({"hang_timeout": None}, False, None),
        ({"hang_timeout": 120.0}, True, 120.0),
        ({"restart_failed": 1}, True, 120.0),
        ({"num_envs": 2, "num_procs": 2}, True, 120.0),
        ({"num_envs": 2, "num_procs": 2, "hang_timeout": None}, True, None),
    ],
)
def test_whoever_asks_for_a_look_at_the_processes_gets_it(change, supervised, seconds):
    options = dataclasses.replace(ClientOptions(), **change)
    options.check()
    assert (options.is_supervised, options.hang_seconds) == (supervised, seconds)


def test_robots_may_share_processes_but_not_groups():
    for procs, groups in ((1, 4), (4, 1), (2, 2)):
        ClientOptions(num_envs=4, num_procs=procs, num_groups=groups, runner=RunnerOptions(fps=30.0)).check()


@pytest.mark.parametrize("word", ["none", "None", "NONE"])
def test_none_is_read_wherever_a_flag_may_be_none(word):
    flags = [
        "num-episodes",
        "num-steps",
        "hang-timeout",
        "action-timeout",
        "viewer",
        "runner.fps",
        "runner.on-stale",
        "env.action-dim",
    ]
    with reading_none():
        read = tyro.cli(options_type(DummyConfig), args=[part for flag in flags for part in (f"--{flag}", word)])
    values = (read.num_episodes, read.num_steps, read.hang_timeout, read.action_timeout, read.viewer)
    assert {*values, read.runner.fps, read.runner.on_stale, read.env.action_dim} == {None}


def test_none_is_no_number(capsys):
    with pytest.raises(SystemExit) as left, reading_none():
        tyro.cli(ClientOptions, args=["--num-envs", "none"])
    assert left.value.code == 2
    assert "none" in capsys.readouterr().err
