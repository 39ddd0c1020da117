"""The command lines: usage, exit codes, and the files they write."""

import json
import socket
import subprocess
import sys
import threading
from importlib.metadata import entry_points
from xml.etree import ElementTree as ET

import pytest
from plugrl_protocol.conformance import cli
from plugrl_protocol.conformance.cli import client_main, server_main


def test_both_commands_are_installed():
    scripts = {script.name: script.value for script in entry_points(group="console_scripts")}

    assert scripts["plugrl-conformance"] == "plugrl_protocol.conformance.cli:client_main"
    assert scripts["plugrl-conformance-server"] == "plugrl_protocol.conformance.cli:server_main"


@pytest.mark.parametrize(
    ("main", "arguments", "told"),
    [
        (client_main, ["--probe", "--action-dim", "11"], "--action-dim 11: expected 1 to 10 with --probe"),
        (client_main, ["--probe", "--action-dtype", "float16"], "--action-dtype float16: expected one of float32"),
        (client_main, ["--scenario", "basic"], "--scenario needs --probe"),
        (client_main, ["--features", "reuse"], "--features reuse: expected reuse-feedback-obs, declare-spaces"),
        (client_main, ["--steps", "0"], "--steps: 0: expected a whole number of 1 or more"),
        (client_main, ["--steps", "many"], "--steps: 'many': expected a whole number"),
        (client_main, ["--port", "65536"], "--port: 65536: expected 0 to 65535"),
        (client_main, ["--timeout", "nan"], "--timeout: 'nan': expected a positive number of seconds"),
        (client_main, ["--timeout", "soon"], "--timeout: 'soon': expected a positive number of seconds"),
        (client_main, ["--known-failing", "nowhere.txt"], "--known-failing nowhere.txt:"),
        (client_main, ["--probe", "--scenario", "most"], "--scenario: invalid choice: 'most'"),
        (server_main, ["--port", "0"], "--port 0: expected 1 to 65535, where the server listens"),
        (server_main, ["--exchanges", "2"], "--exchanges: 2: expected a whole number of 3 or more"),
        (server_main, ["--action-space", "sphere:2"], "--action-space: 'sphere:2': expected such as box:3"),
        (server_main, ["--action-space", "discrete:0"], "'discrete:0': expected such as"),
        (server_main, ["--action-space", "box:x"], "'box:x': expected such as"),
    ],
)
def test_mistakes_in_the_arguments_are_named(capsys, main, arguments, told):
    with pytest.raises(SystemExit) as raised:
        main(arguments)

    assert raised.value.code == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize("main", [client_main, server_main])
def test_help(capsys, main):
    with pytest.raises(SystemExit) as raised:
        main(["--help"])

    assert raised.value.code == 0
    assert "--known-failing" in capsys.readouterr().out


@pytest.mark.parametrize("main", [client_main, server_main])
def test_without_websockets_the_install_command_is_told(capsys, monkeypatch, main):
    monkeypatch.setattr(cli, "find_spec", lambda _: None)

    assert main([]) == 3
    assert "pip install 'plugrl-protocol[conformance]'" in capsys.readouterr().err


def test_nothing_is_imported_from_websockets_to_say_so():
    code = "import sys; from plugrl_protocol.conformance import cli; sys.exit('websockets' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_violation_and_the_files(capsys, tmp_path):
    files = {name: tmp_path / f"report.{name}" for name in ("json", "junit")}
    status = client_main(
        ["--port", "0", "--client", "echo no robot; exit 4", *(f"--{name}={path}" for name, path in files.items())]
    )
    out, err = capsys.readouterr()

    assert status == 1
    assert "  FAIL  4.2 exchange/progress  1 failed\n" in out
    assert "no robot" in out
    assert "plugrl-conformance: listening on 127.0.0.1 port" in err
    assert json.loads(files["json"].read_text())["verdict"] == "fail"
    assert ET.parse(files["junit"]).getroot().get("failures") == "1"


def test_a_known_failure_passes(capsys, tmp_path):
    known = tmp_path / "known.txt"
    known.write_text("4.2 exchange/progress: the robot is away\n")

    assert client_main(["--port", "0", "--client", "exit 4", "--known-failing", str(known)]) == 0
    assert "(known: the robot is away)" in capsys.readouterr().out


def test_what_the_checker_cannot_do_is_no_violation(capsys, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert client_main(["--port", str(port)]) == 3
        assert "in use" in capsys.readouterr().err
    assert client_main(["--port", "0", "--client", "exit 4", "--json", str(tmp_path / "no" / "file")]) == 3
    assert "No such file" in capsys.readouterr().err
    assert server_main(["--port", str(port), "--json", str(tmp_path / "report")]) == 3
    out, err = capsys.readouterr()
    assert "verdict: INCOMPLETE" in out
    assert "no server to grade: cannot connect" in err
    assert json.loads((tmp_path / "report").read_text())["verdict"] == "incomplete"


def test_a_fault_of_the_checker_itself(capsys, monkeypatch):
    def fail(*_):
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(cli, "_check_client", fail)

    assert client_main([]) == 3
    assert "the checker itself has failed" in capsys.readouterr().err


def test_an_interrupt(capsys, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "_check_server", interrupt)

    assert server_main([]) == 3
    assert "interrupted" in capsys.readouterr().err


def test_a_clean_client_that_was_started_elsewhere(capsys, probe_client, monkeypatch):
    monkeypatch.setattr("plugrl_protocol.conformance.client_scenarios.stage._LINGER_SECONDS", 0.1)
    say, ports = cli._say, []

    def listen(text: str) -> None:
        say(text)
        if "listening" in text:
            ports.append(int(text.rpartition(" ")[2]))
            threading.Thread(target=probe_client(ports[0]).run, daemon=True).start()

    monkeypatch.setattr(cli, "_say", listen)

    assert client_main(["--port", "0", "--steps", "3"]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[-1] == "verdict: PASS, 0 violations, 0 notes, 3 exchanges"
    assert "watch: start the client now" in err


def test_a_clean_server(capsys, server):
    assert server_main(["--port", str(server().port), "--action-space", "box:2", "--timeout", "5"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("verdict: PASS, 0 violations, 0 notes")


def test_a_key_that_the_user_has_to_give(capsys, server):
    with pytest.raises(SystemExit) as raised:
        server_main(["--port", str(server(key="secret").port)])

    assert raised.value.code == 2
    assert "give its key by --api-key" in capsys.readouterr().err


@pytest.mark.parametrize("main", [client_main, server_main])
def test_help_tells_every_default(main, capsys, monkeypatch):
    monkeypatch.delenv("PLUGRL_API_KEY", raising=False)
    with pytest.raises(SystemExit):
        main(["--help"])
    told = " ".join(capsys.readouterr().out.split())
    parser = {client_main: cli._client_parser, server_main: cli._server_parser}[main]()
    defaults = {action.dest: action.default for action in parser._actions}
    shown = [
        f"default: {value:g}" if isinstance(value, float) else f"default: {value}"
        for value in defaults.values()
        if value not in (None, False, "", "==SUPPRESS==")
    ]
    assert len(shown) > 4
    assert [text for text in shown if text not in told] == []
