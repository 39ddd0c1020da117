"""Real processes whose envs raise, hang, exit, die or print a lot."""

import json
import re
from pathlib import Path

import pytest
from plugrl_env_client.cli import main

NAME = "client process 0 (envs 0 to 2)"


def summary():
    return json.loads(Path("plugrl-client/run/summary.json").read_text())


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("raise", ": broken-v1 failed: RuntimeError: joint 3"),
        ("exit", ": broken-v1 failed: RuntimeError: it raised SystemExit(3)"),
        ("leave", " exited with 4"),
        ("kill", " was ended by SIGKILL"),
        ("chatter", " was ended by SIGABRT"),
    ],
)
def test_a_child_that_breaks_is_named_with_its_last_lines_and_the_others_are_ended(broken, capsys, how, said):
    server, arguments = broken(how)
    assert main(arguments) == 1
    server.wait()
    error = capsys.readouterr().err
    assert error.splitlines()[-1] == f"plugrl-run-env-client: {NAME}{said}"
    assert f"{NAME}{said}. Its last lines, from plugrl-client/run/0.log:\n    " in error
    assert ("about to" in error) == (how in ("leave", "kill"))
    assert error.count("chatter") < 100
    assert Path("plugrl-client/run/0.log").read_text().count("chatter ") == (100_000 if how == "chatter" else 0)
    ended = summary()
    assert ended["outcome"] == f"failed ({NAME}{said})"
    assert [part["outcome"] for part in ended["processes"]][1] == "interrupted"
    assert ended["processes"][0]["outcome"].startswith("failed: ")
    assert ended["steps"] == sum(env["steps"] for env in ended["envs"])
    # The other child may have been ended before its first infer.
    other = [peer for peer in server.peers if peer.infers and len(peer.infers[0]["env_indices"]) == 2]
    assert {peer.closed_with[0] for peer in other} <= {1000}


def test_the_traceback_of_an_env_is_among_the_last_lines(broken, capsys):
    main(broken("raise")[1])
    error = capsys.readouterr().err
    assert "RuntimeError: joint 3\n" in error
    assert "in break_down" in error


@pytest.mark.slow
def test_a_child_that_hangs_is_named_and_shows_where(broken, capsys):
    _, arguments = broken("hang", "--hang-timeout", "5")
    assert main(arguments) == 1
    error = capsys.readouterr().err
    assert f"{NAME} hung: no env step for 5 s, and it was not waiting for the server. Its last lines, from " in error
    assert re.search(r'File ".*broken_env.py", line \d+ in break_down', error)
    assert summary()["processes"][0]["outcome"].startswith("failed: hung: ")


def test_what_an_env_has_started_ends_with_its_process(broken, gone):
    assert main(broken("leave")[1]) == 1
    (pid,) = re.findall(r"left (\d+)", Path("plugrl-client/run/0.log").read_text())
    gone(int(pid))


def test_without_a_folder_the_logs_of_a_failed_run_are_kept(broken, capsys):
    _, arguments = broken("leave")
    where = arguments.index("--exp-name")
    assert main([*arguments[:where], *arguments[where + 2 :]]) == 1
    (log,) = re.findall(r"Its last lines, from (.*):", capsys.readouterr().err)
    assert "about to leave" in Path(log).read_text()


def test_a_process_that_nobody_looks_after_says_so_too(broken, capsys):
    _, arguments = broken("exit", procs=1, envs=3)
    assert main(arguments) == 1
    said = "broken-v1 failed: RuntimeError: it raised SystemExit(3)"
    assert capsys.readouterr().err.splitlines()[-1] == f"plugrl-run-env-client: {said}"
    assert summary()["outcome"] == f"failed ({said})"
