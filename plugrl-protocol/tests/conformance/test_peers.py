"""The reference peers and our own programs before the checkers: clean ones pass, each bug is named first.

The peers are processes that share no code with the checkers; this is the checkers' own test, too.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from plugrl_protocol.conformance.cli import client_main, server_main

EXAMPLES = Path(__file__).parents[3] / "examples"
RAW = f"{sys.executable} {EXAMPLES / 'raw_client.py'} --host {{host}} --port {{port}}"
SERVER = f"{sys.executable} {EXAMPLES / 'reference_server.py'} --host {{host}} --port {{port}}"
REUSE = "reuse-feedback-obs"

# Bug -> the section to be named first, and the scenario that shows it.
CLIENT_BUGS = {
    "early-infer": ("5.1", "basic"),
    "compress": ("1.1", "basic"),
    "frame-cap": ("1.1", "basic"),
    "float32": ("5.3", "basic"),
    "env-major": ("5.3", "basic"),
    "last-step-reward": ("5.4", "basic"),
    "reset-in-step": ("5.4", "basic"),
    "resend-feedback": ("7.6", "resync"),
    "ignore-stop": ("7.1", "basic"),
    "ignore-text": ("7.4", "text"),
    "stale-chunk": ("7.6", "resync"),
    "reuse-unoffered": ("10.1", "basic"),
    "reuse-after-reset": ("10.1", "basic"),
}
SERVER_BUGS = {
    "no-metadata": "5.1",
    "env-major": "5.3",
    "no-env-ids": "4.3",
    "wrong-horizon": "5.1",
    "lenient": "7.2",
    "crash-on-info": "5.4",
    "plain-stop": "7.1",
    "lenient-reuse": "10.1",
}

Check = Callable[..., dict[str, Any]]


@pytest.fixture
def check(tmp_path: Path) -> Check:
    """Runs a checker; returns its JSON report, whose verdict fits the exit status."""

    def run(main: Callable[[list[str]], int], *arguments: str) -> dict[str, Any]:
        path = tmp_path / "report.json"
        status = main(["--port", "0", "--json", str(path), *arguments])
        report: dict[str, Any] = json.loads(path.read_text())
        assert status == {"pass": 0, "fail": 1, "incomplete": 3}[report["verdict"]]
        return report

    return run


@pytest.fixture(scope="session")
def cpp_client(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The command of the C++ client."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no g++")
    program = tmp_path_factory.mktemp("peers") / "plugrl_client"
    source = str(EXAMPLES / "plugrl_client.cpp")
    subprocess.run([compiler, "-std=c++17", "-O0", "-o", str(program), source], check=True, timeout=100)
    return f"{program} --probe {{host}} {{port}}"


def probe(check: Check, command: str, scenario: str, *more: str) -> dict[str, Any]:
    return check(client_main, "--probe", "--scenario", scenario, "--timeout", "30", "--client", command, *more)


def assert_one_note(report: dict[str, Any]) -> None:
    assert report["violations"] == []
    assert [note["clause"] for note in report["notes"]] == ["3.4 observation/text"]


def assert_named_first(report: dict[str, Any], section: str) -> None:
    assert report["verdict"] == "fail"
    assert report["violations"][0]["clause"].split()[0] == section, report["violations"]


@pytest.mark.parametrize("features", ["", REUSE, f"{REUSE},declare-spaces"])
def test_raw_client_passes_with_one_note(check, features):
    assert_one_note(probe(check, f"{RAW} --probe", "all", "--features", features))


def test_raw_client_passes_watch_mode_with_one_note(check):
    report = check(client_main, "--client", f"{RAW} --steps 20")

    assert_one_note(report)
    assert report["exchanges"] == 20


@pytest.mark.parametrize("features", ["", REUSE])
def test_cpp_client_passes_with_one_note(check, cpp_client, features):
    assert_one_note(probe(check, cpp_client, "all", "--features", features))


def test_cpp_client_passes_watch_mode_with_one_note(check, cpp_client):
    assert_one_note(check(client_main, "--client", cpp_client.replace("--probe ", "") + " 20"))


def features_for(bug: str) -> list[str]:
    return ["--features", REUSE] if bug == "reuse-after-reset" else []


@pytest.mark.parametrize(("bug", "expected"), CLIENT_BUGS.items(), ids=CLIENT_BUGS)
def test_raw_client_bug_is_named_first(check, bug, expected):
    section, scenario = expected
    report = probe(check, f"{RAW} --probe --bug {bug}", scenario, *features_for(bug))

    assert_named_first(report, section)


@pytest.mark.parametrize(("bug", "expected"), CLIENT_BUGS.items(), ids=CLIENT_BUGS)
def test_cpp_client_bug_is_named_first(check, cpp_client, bug, expected):
    section, scenario = expected
    report = probe(check, f"{cpp_client} --bug {bug}", scenario, *features_for(bug))

    assert_named_first(report, section)


def grade_server(check: Check, command: str, *more: str) -> dict[str, Any]:
    return check(server_main, "--until-stop", "--server", command, "--timeout", "30", *more)


def test_reference_server_passes(check):
    report = grade_server(check, f"{SERVER} --exchanges 150")

    assert report["violations"] == report["notes"] == []
    assert "7.1 closing/exit-status" in report["passed"]
    assert "10.2 spaces/disagree" in report["passed"]


def test_reference_server_passes_with_a_key_and_images(check):
    command = f"{SERVER} --api-key secret"
    report = check(server_main, "--server", command, "--api-key", "secret", "--image-key", "cam", "--image-size", "32")

    assert report["violations"] == report["notes"] == []
    assert "1.2 auth/api-key" in report["passed"]


@pytest.mark.parametrize(("bug", "section"), SERVER_BUGS.items(), ids=SERVER_BUGS)
def test_reference_server_bug_is_named_first(check, bug, section):
    timeout = "1.5" if bug == "no-metadata" else "30"
    report = grade_server(check, f"{SERVER} --exchanges 150 --bug {bug}", "--timeout", timeout)

    assert_named_first(report, section)


def test_the_tables_name_every_bug():
    def listed(program: str) -> set[str]:
        help_text = subprocess.run(
            [sys.executable, EXAMPLES / program, "--help"], capture_output=True, text=True
        ).stdout
        return {line.split()[0] for line in help_text.partition("\nbugs:\n")[2].splitlines() if line.strip()}

    assert listed("raw_client.py") == CLIENT_BUGS.keys()
    assert listed("reference_server.py") == SERVER_BUGS.keys()


def installed(program: str) -> str:
    """The path of one of our other packages' programs."""
    path = Path(sys.executable).with_name(program)
    if not path.exists():
        pytest.skip(f"{program} is not installed")
    return str(path)


def test_env_client_passes_without_a_note(check):
    client = installed("plugrl-run-env-client")
    command = f"{client} probe-v1 --num-envs 3 --server-host {{host}} --server-port {{port}}"
    report = probe(check, command, "all", "--features", f"{REUSE},declare-spaces")

    assert report["violations"] == report["notes"] == []
    assert "10.1 reuse/held" in report["passed"]


@pytest.mark.parametrize(
    "selection",
    [
        "dummy-policy default dummy default",
        "gaussian-policy default ppo default --policy.obs-dim 3 --policy.action-dim 1 --algo.global-steps 3000",
    ],
    ids=["dummy", "ppo"],
)
def test_training_server_passes(check, selection, tmp_path):
    server = installed("plugrl-run-server")
    command = f"{server} {selection} --host {{host}} --port {{port}} --checkpoint-base-dir {tmp_path}"
    report = grade_server(check, command, "--state-dim", "3")

    assert report["violations"] == report["notes"] == []
    assert {"7.1 closing/exit-status", "10.1 reuse/answered", "10.2 spaces/disagree"} <= set(report["passed"])
