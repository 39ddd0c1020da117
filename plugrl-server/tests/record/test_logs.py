import io
import logging

import pytest
from plugrl_server.record.logs import logging_to
from rich.console import Console


@pytest.mark.parametrize("live", [True, False])
def test_messages_of_the_level_and_above_are_shown_and_nothing_stays_behind(live, capsys):
    screen = io.StringIO()
    handlers, level = list(logging.getLogger().handlers), logging.getLogger("plugrl_server").level
    with logging_to(Console(file=screen, width=120), "info", live=live):
        logging.getLogger("plugrl_server.x").info("shown [not markup]")
        logging.getLogger("plugrl_server.x").debug("hidden")
        logging.getLogger("another.package").info("hidden")
        logging.getLogger("another.package").warning("seen")
    text = screen.getvalue() if live else capsys.readouterr().err
    assert "shown [not markup]" in text
    assert "seen" in text
    assert "hidden" not in text
    assert logging.getLogger().handlers == handlers
    assert logging.getLogger("plugrl_server").level == level
