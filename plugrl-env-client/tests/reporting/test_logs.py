"""Log lines on standard error."""

import logging

import pytest
from plugrl_env_client.reporting.logs import set_up_logs


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


def test_a_childs_lines_start_with_its_number(capsys):
    set_up_logs("error", quiet=False, process=3)
    say()
    assert capsys.readouterr().err == "[3] at ERROR\n"


def test_setting_up_twice_writes_once(capsys):
    set_up_logs("error", quiet=False)
    set_up_logs("error", quiet=False)
    say()
    assert capsys.readouterr().err == "at ERROR\n"
