"""Torchrun starts the learners: exit codes, signals and names, with processes that import nothing heavy."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from plugrl_server.common.config_error import ConfigError
from plugrl_server.learners import torchrun

PARTS = {
    "well": "pass",
    "at_zero": "assert os.environ['RANK'] == '0'",
    "wait": "signal.sigwait({signal.SIGUSR1})",
    "killed": "os.kill(os.getpid(), signal.SIGKILL)",
    "fails": "sys.exit(3)",
    "stops": "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT});"
    "Path(os.environ['PLUGRL_RANK_0_FILE']).write_text(str(os.getpid()));"
    "os.kill(os.getppid(), signal.SIGINT); signal.sigwait({signal.SIGINT}); sys.exit(130)",
    "interrupts": "os.kill(os.getppid(), signal.SIGINT); signal.sigwait({signal.SIGUSR1})",
    "tells": "Path('told').write_text(repr((sys.argv[1:], os.environ['OMP_NUM_THREADS'], os.environ['WORLD_SIZE'])))",
}


@pytest.fixture(autouse=True)
def environment(tmp_path, monkeypatch):
    """The environment, the folder and the signal handlers as they were."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT)}
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "environ", os.environ.copy())
    os.environ.pop("TORCHELASTIC_RUN_ID", None)
    yield
    assert signal.getsignal(signal.SIGINT) == handlers[signal.SIGINT]
    assert signal.getsignal(signal.SIGTERM) == handlers[signal.SIGTERM]
    signal.signal(signal.SIGQUIT, handlers[signal.SIGQUIT])


def launched(rank_0, rank_1, *words):
    """The exit code of two processes, each doing one of `PARTS`; what they leave running is killed."""
    code = (
        "import os, signal, sys; from pathlib import Path;"
        "Path('pid-' + os.environ['RANK']).write_text(str(os.getpid()));"
        f"exec({[PARTS[rank_0], PARTS[rank_1]]!r}[int(os.environ['RANK'])])"
    )
    return torchrun.launch([sys.executable, "-c", code, *words], 2)


def left_running():
    pids = [int(path.read_text()) for path in Path.cwd().glob("pid-*")]
    assert pids
    return [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def test_learners_that_end_well_end_the_command_well(capfd):
    assert launched("tells", "well", "--client", "echo $$ ${local_rank}", "") == 0
    words, threads, size = eval(Path("told").read_text())
    assert words == ["--client", "echo $$ ${local_rank}", ""]
    assert int(threads) >= 1
    assert size == "2"
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(("rank_0", "code"), [("fails", 3), ("killed", 128 + 9)])
def test_the_exit_code_is_rank_0s_and_the_others_end(rank_0, code, capfd):
    assert launched(rank_0, "wait") == code
    assert left_running() == []
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("rank_1", "ending"), [("killed", "was ended by SIGKILL"), ("fails", "exited with 3")], ids=["killed", "failed"]
)
def test_a_learner_that_dies_fails_the_command_by_name(rank_1, ending, capfd):
    assert launched("wait", rank_1) == 1
    assert left_running() == []
    pid = Path("pid-1").read_text()
    assert capfd.readouterr().err == f"error: learner 1 (process {pid}) {ending}\n"


def test_a_signal_reaches_rank_0_alone_which_stops_in_its_own_time():
    assert launched("stops", "wait") == 130
    assert left_running() == []


def test_a_signal_before_rank_0_is_there_ends_the_command():
    with pytest.raises(KeyboardInterrupt):
        launched("wait", "interrupts")
    assert left_running() == []


def test_a_process_that_torchrun_did_not_start_is_to_be_launched():
    assert torchrun.place(2) == (0, False)


def test_a_run_without_learners_has_nothing_to_do_with_a_torchrun_around_it():
    os.environ.update(TORCHELASTIC_RUN_ID="x", RANK="1", WORLD_SIZE="2")
    assert torchrun.place(1) == (0, False)


def test_a_process_of_torchruns_knows_its_place_and_rank_0_announces_itself(tmp_path, monkeypatch):
    ended = []
    monkeypatch.setattr(torchrun, "_end_with_agent", lambda: ended.append(True))
    os.environ.update(TORCHELASTIC_RUN_ID="x", RANK="1", WORLD_SIZE="2", PLUGRL_RANK_0_FILE=str(tmp_path / "rank-0"))
    assert torchrun.place(2) == (1, True)
    assert not (tmp_path / "rank-0").exists()
    os.environ["RANK"] = "0"
    assert torchrun.place(2) == (0, True)
    assert (tmp_path / "rank-0").read_text() == str(os.getpid())
    assert ended == [True]


LEAF = """
import signal, sys
from plugrl_server.learners import torchrun
signal.signal(signal.SIGTERM, lambda *_: sys.exit(print("stopped", flush=True)))
torchrun._end_with_agent()
print("ready", flush=True)
signal.pause()
"""
AGENT = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', sys.argv[1]]).wait()"


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="an agent is watched on Linux only")
def test_rank_0_stops_cleanly_when_its_agent_is_killed():
    with subprocess.Popen([sys.executable, "-c", AGENT, LEAF], stdout=subprocess.PIPE, text=True) as agent:
        assert agent.stdout.readline() == "ready\n"
        agent.kill()
        assert agent.stdout.read() == "stopped\n"  # and nobody holds the pipe any more


def test_another_number_of_processes_than_learners_is_refused():
    os.environ.update(TORCHELASTIC_RUN_ID="x", RANK="0", WORLD_SIZE="4")
    with pytest.raises(ConfigError, match="--learners 2: torchrun started 4 processes"):
        torchrun.place(2)


def test_the_command_is_run_again_in_the_way_it_was_started(monkeypatch):
    monkeypatch.setattr(sys, "orig_argv", ["python3", "-c", "import mine; main()", "ppo"])
    assert torchrun.this_command(None) == [sys.executable, "-c", "import mine; main()", "ppo"]
    assert torchrun.this_command(["ppo"]) == [sys.executable, "-m", "plugrl_server.cli", "ppo"]


MEMBER = """
import atexit, sys
from plugrl_server.learners import torchrun
atexit.register(print, "the interpreter ends")
torchrun.end(5)  # joined nobody yet
torchrun._join("cpu")
if sys.argv[1] == "leaves":
    torchrun._leave()
print("joined")
torchrun.end(3)
sys.exit(4)
"""


@pytest.mark.parametrize(
    ("word", "code", "said"), [("leaves", 4, "joined\nthe interpreter ends\n"), ("stays", 3, "joined\n")]
)
def test_a_process_that_has_not_left_the_others_ends_at_once(word, code, said):
    """The interpreter's end would abort now and then, with another exit code."""
    alone = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    program = [sys.executable, "-c", MEMBER, word]
    ended = subprocess.run(program, env={**os.environ, **alone, **meeting}, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (code, said)
