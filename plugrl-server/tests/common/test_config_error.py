"""The error of a configuration that cannot work."""

import pytest
from plugrl_server.common.config_error import ConfigError, require


def test_a_condition_that_holds_passes_and_another_is_the_error_text():
    require(True, "never seen")
    with pytest.raises(ConfigError, match=r"^--algo\.batch-size 0: must be at least 1$"):
        require(False, "--algo.batch-size 0: must be at least 1")


def test_it_is_a_value_error():
    assert issubclass(ConfigError, ValueError)
