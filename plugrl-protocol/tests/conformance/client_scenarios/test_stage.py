"""The client's process, the way in and the way out."""

import sys

import pytest
from plugrl_protocol.conformance.client_scenarios.probe import text
from plugrl_protocol.conformance.client_scenarios.stage import Stage
from plugrl_protocol.conformance.client_scenarios.watch import watch
from plugrl_protocol.conformance.peer.listener import Listener

# A client in a few lines: it exchanges until it is stopped, then exits with the status it was given.
CLIENT = """
import sys, numpy as np
from plugrl_protocol.codec import decode, encode
from plugrl_protocol.conformance.peer.dialing import dial
from plugrl_protocol.conformance.peer.trace import Trace
from plugrl_protocol.messages import Feedback, Infer
from plugrl_protocol.observation import Observation
end = dial("127.0.0.1", int(sys.argv[1]), Trace(), timeout=5.0)
see, one, no = Observation({}, {"obs": np.zeros((1, 3))}, ["x"]), np.array([0]), np.array([False])
end.receive(5.0)
for count in range(1000):
    end.send(encode(Infer(see, one, np.array([count])).to_wire()))
    if not isinstance(end.receive(5.0), bytes):
        break
    end.send(encode(Feedback(one, np.array([count]), see, np.zeros(1, np.float32), no, no, {}).to_wire()))
end.drop()
print("the client says goodbye")
sys.exit(int(sys.argv[2]))
"""


@pytest.fixture
def play_command(client_options, report, tmp_path):
    script = tmp_path / "client.py"
    script.write_text(CLIENT)

    def run(command: str, scenario=watch, **changes):
        listener = Listener("127.0.0.1", 0)
        command = command.replace("CLIENT", f"{sys.executable} {script} {{port}}")
        stage = Stage(client_options(command=command, steps=3, **changes), report, listener)
        try:
            stage.play("watch", scenario)
        finally:
            listener.close()
        return report

    return run


def test_a_client_of_ours_passes(play_command):
    report = play_command("CLIENT 0")

    assert report.violations == []
    assert report.has_passed("7.1 closing/exit-status")


def test_its_exit_status_is_a_failure_of_its_own_and_its_output_is_shown(play_command):
    report = play_command("CLIENT 3")

    assert [(one.clause, one.detail) for one in report.violations] == [
        ("7.1 closing/exit-status", "expected the client to exit with 0, got exit status 3")
    ]
    assert report.violations[0].evidence[-1] == "  the client says goodbye"


def test_its_exit_status_does_not_count_beside_another_violation_nor_after_text(play_command):
    assert play_command("CLIENT 3", text).clean
    report = play_command("sleep 0.2; exit 3")

    assert [one.clause for one in report.violations] == ["4.2 exchange/progress"]


def test_a_client_that_ends_without_connecting_is_not_waited_for(play_command):
    report = play_command("echo no such robot; exit 7", timeout=60.0)

    assert report.violations[0].detail == "the client ended with exit status 7 before it connected"
    assert report.violations[0].evidence[-1] == "  no such robot"


def test_a_client_that_never_connects(play_command):
    report = play_command("exec sleep 60", timeout=0.3)

    assert report.violations[0].detail == "no client has connected within 0.3 s"


def test_a_client_that_does_not_end(play_command):
    report = play_command("CLIENT 0; sleep 60", timeout=2.0)

    assert [one.clause for one in report.violations] == ["7.1 closing/exit-status"]
    assert "still runs 2 s after the 1001 plugrl-server-stop" in report.violations[0].detail
