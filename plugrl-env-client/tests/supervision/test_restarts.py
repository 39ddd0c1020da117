"""`--restart-failed`: real processes that fail once, again and again, or for good."""

import json
import re
from pathlib import Path

import pytest
from plugrl_env_client.cli import main
from plugrl_env_client.supervision import child


@pytest.fixture(autouse=True)
def _at_once(monkeypatch):
    monkeypatch.setattr(child, "FIRST_DELAY", 0.01)


def summary():
    return json.loads(Path("plugrl-client/run/summary.json").read_text())


@pytest.mark.parametrize("how", ["raise", "exit", "kill"])
def test_a_failed_child_is_started_again_with_its_share_and_seed(broken, capsys, how):
    server, arguments = broken(how, "--env.marker", "broken-once", "--num-steps", "400", "--runner.seed", "7")
    assert main([*arguments, "--restart-failed", "2"]) == 0
    server.wait()
    error = capsys.readouterr().err
    assert error.count("It is started again in 0.01 s: restart 1 of --restart-failed 2") == 1
    assert sorted(len(peer.infers[0]["env_indices"]) for peer in server.peers) == [2, 3, 3]
    log = Path("plugrl-client/run/0.log").read_text()
    assert re.findall("seed .*|about to .*", log) == ["seed 7", f"about to {how}", "seed 7"]
    ended = summary()
    assert (ended["outcome"], ended["exit_code"], ended["restarts"]) == ("ran what was asked for", 0, 1)
    assert [part["restarts"] for part in ended["processes"]] == [1, 0]
    assert ended["processes"][0]["connections"] == (1 if how == "kill" else 2)
    assert 400 <= ended["steps"] < 450


def test_one_process_can_be_looked_after_too(broken):
    _, arguments = broken("exit", "--env.marker", "once", "--num-steps", "90", procs=1, envs=3)
    assert main([*arguments, "--restart-failed", "1"]) == 0
    assert summary()["restarts"] == 1


def test_groups_are_started_again_together(broken):
    marked = ("--env.marker", "once", "--num-steps", "160", "--num-groups", "2")
    server, arguments = broken("raise", *marked, of=2, envs=4, procs=1)
    assert main([*arguments, "--restart-failed", "1"]) == 0
    server.wait()
    assert [env["env"] for env in summary()["envs"]] == [0, 1, 2, 3]
    assert len(server.peers) == 4


def test_restarts_are_used_up_and_come_ever_later(broken, capsys):
    _, arguments = broken("leave", "--restart-failed", "3")
    assert main(arguments) == 1
    error = capsys.readouterr().err
    assert re.findall(r"started again in (\S+) s", error) == ["0.01", "0.02", "0.04"]
    assert error.splitlines()[-1].endswith("client process 0 (envs 0 to 2) exited with 4")
    assert summary()["processes"][0]["restarts"] == 3


@pytest.mark.parametrize("at_step", [0, 10])
def test_what_would_fail_in_the_same_way_is_not_tried_again(broken, capsys, at_step):
    _, arguments = broken("refuse", "--restart-failed", "3", at_step=at_step)
    assert main(arguments) == (1 if at_step else 2)
    error = capsys.readouterr().err
    assert "joint 3 is missing" in error
    assert "started again" not in error


def test_a_refused_client_is_not_tried_again(fake_server, capsys):
    server = fake_server(lambda peer: peer.close(1008, "plugrl-server-reject: not you"))
    flags = f"--server-port {server.port} --num-procs 2 --num-envs 2 --restart-failed 5"
    assert main(["dummy-v1", *flags.split()]) == 1
    assert len(server.peers) <= 2
    assert "started again" not in capsys.readouterr().err
