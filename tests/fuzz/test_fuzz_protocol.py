import signal
import sys

import fuzz_protocol
import pytest
from fuzz_protocol import Findings, SlowError, main, seeded, watched


@pytest.mark.parametrize(("target", "ways"), [("frame", 25), ("conversation", 70)])
def test_lesson_2_thousands_of_mutations_find_nothing(target, ways, tmp_path, capsys):
    findings = Findings(tmp_path)
    ends = seeded(target, findings, seed=0, inputs=4_000, seconds=60)
    assert findings.files == [], capsys.readouterr().err
    assert len(ends) > ways  # most kinds of refusal were met, in every turn


def test_a_run_that_finds_nothing_says_what_it_met(tmp_path, capsys):
    assert main(["--inputs", "100", "--findings", str(tmp_path / "none")]) == 0
    told = capsys.readouterr().err
    assert "frame: 2" in told
    assert "conversation: 1" in told
    assert "3.2 codec/array" in told
    assert "0 findings" in told
    assert not (tmp_path / "none").exists()


@pytest.fixture
def _a_fault(monkeypatch):
    def broken(data):
        if b"infer" in data:
            raise IndexError("planted")
        if b"feedback" in data:
            raise ValueError("planted, too")
        return "fine"

    monkeypatch.setitem(fuzz_protocol.TARGETS, "frame", broken)


@pytest.mark.usefixtures("_a_fault")
def test_a_finding_is_a_file_that_one_command_plays_again(tmp_path, capsys, monkeypatch):
    assert main(["--target", "frame", "--inputs", "300", "--findings", str(tmp_path)]) == 1
    told = capsys.readouterr().err
    files = sorted(tmp_path.glob("frame-*.bin"))
    assert len(files) == 2  # each fault once
    assert "2 findings" in told
    for path in files:
        assert f"--replay {path}" in told
        assert "planted" in path.with_suffix(".txt").read_text()
        assert main(["--replay", str(path)]) == 1
        assert "planted" in capsys.readouterr().err
    monkeypatch.undo()  # mended
    for path in files:
        assert main(["--replay", str(path)]) == 0
        assert f"{path}: " in capsys.readouterr().err


def test_an_input_that_takes_too_long_is_a_finding(monkeypatch, tmp_path):
    def endless(data):
        try:
            while True:
                pass
        except Exception:  # as a decoder with a second way would
            return "hidden"

    monkeypatch.setitem(fuzz_protocol.TARGETS, "frame", endless)
    monkeypatch.setattr(fuzz_protocol, "watched", lambda: watched(0.02))
    findings = Findings(tmp_path)
    seeded("frame", findings, seed=0, inputs=0, seconds=0.01)
    assert len(findings.files) == 1
    assert "SlowError" in findings.files[0].with_suffix(".txt").read_text()


def test_the_watch_ends_with_its_block():
    def forever(seconds):
        with watched(seconds) as start:
            start()
            while True:
                pass

    with watched(10) as start:
        start()
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0)
    with pytest.raises(SlowError, match=r"over 0\.01 s"):
        forever(0.01)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--seconds", "0"], "--seconds must be positive"),
        (["--target", "nothing"], "invalid choice"),
        (["--engine", "atheris"], "takes one --target at a time"),
    ],
)
def test_options_are_checked(options, message, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(options)
    assert message in capsys.readouterr().err


def test_atheris_is_asked_for_by_name(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "atheris", None)
    with pytest.raises(SystemExit, match="2"):
        main(["--engine", "atheris", "--target", "frame"])
    assert "atheris is not installed" in capsys.readouterr().err


def test_what_cannot_be_replayed_is_named(tmp_path, capsys):
    assert main(["--replay", str(tmp_path / "frame-1.bin")]) == 2
    assert "frame-1.bin: No such file" in capsys.readouterr().err
    (tmp_path / "other.bin").write_bytes(b"\xc0")
    assert main(["--replay", str(tmp_path / "other.bin")]) == 2
    assert "expected a name that begins with one of frame, conversation, or --target" in capsys.readouterr().err
    assert main(["--replay", str(tmp_path / "other.bin"), "--target", "frame"]) == 0
    assert "2 envelope/message-type" in capsys.readouterr().err
