"""Log lines on standard error."""

import logging
import re

import pytest
from plugrl_env_client.reporting.logs import TAIL_LINES, last_lines, set_up_logs


@pytest.fixture(autouse=True)
def _put_back():
    logger = logging.getLogger("plugrl_env_client")
    before = logger.handlers[:], logger.level, logger.propagate
    yield
    logger.handlers[:], logger.propagate = before[0], before[2]
    logger.setLevel(before[1])


def say():
    logger = logging.getLogger("plugrl_env_client.link")
    for level in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR):
        logger.log(level, "at %s", logging.getLevelName(level))


@pytest.mark.parametrize(
    ("level", "quiet", "lines"),
    [
        ("debug", False, ["at DEBUG", "at INFO", "at WARNING", "at ERROR"]),
        ("info", False, ["at INFO", "at WARNING", "at ERROR"]),
        ("warning", False, ["at WARNING", "at ERROR"]),
        ("error", False, ["at ERROR"]),
        ("debug", True, ["at ERROR"]),
    ],
)
def test_the_level_decides_and_quiet_overrules(capsys, level, quiet, lines):
    set_up_logs(level, quiet=quiet)
    say()
    assert capsys.readouterr().err.splitlines() == lines


def test_lines_of_a_log_file_say_when_and_how_severe(capsys):
    set_up_logs("error", quiet=False, file=True)
    say()
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} ERROR at ERROR\n", capsys.readouterr().err)


def test_somebody_else_gets_every_line_too(capsys):
    seen = []

    class Listener(logging.Handler):
        def emit(self, record):
            seen.append(record.getMessage())

    set_up_logs("warning", quiet=False, also=Listener())
    say()
    assert seen == capsys.readouterr().err.splitlines() == ["at WARNING", "at ERROR"]


def test_the_last_lines_of_a_log(tmp_path):
    log = tmp_path / "0.log"
    assert last_lines(log) == []
    log.write_bytes(b"".join(b"line %d\n\n" % number for number in range(50_000)) + b"\xff half a line" + b"." * 10_000)
    lines = last_lines(log)
    assert (len(lines), lines[0], lines[-2]) == (TAIL_LINES, f"line {50_000 - TAIL_LINES + 1}", "line 49999")
    assert lines[-1].startswith("\N{REPLACEMENT CHARACTER} half a line")
    assert len(lines[-1]) == 500


def test_setting_up_twice_writes_once(capsys):
    set_up_logs("error", quiet=False)
    set_up_logs("error", quiet=False)
    say()
    assert capsys.readouterr().err == "at ERROR\n"
