"""The whole workspace's tests: Hypothesis profiles, several processes for the whole suite, packages that must be there.

`HYPOTHESIS_PROFILE=long uv run pytest` looks much harder. With `PLUGRL_REQUIRE_EXTRAS=1` a test fails where it would be
skipped because a package is missing: for the jobs that exist for these packages.
"""

import importlib
import os
from types import ModuleType

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("default", max_examples=100, deadline=None, derandomize=True, print_blob=True)
settings.register_profile(
    "long", max_examples=5_000, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def _import_or_fail(name: str, *_: object, **__: object) -> ModuleType:
    """In place of `pytest.importorskip`."""
    return importlib.import_module(name)


if os.environ.get("PLUGRL_REQUIRE_EXTRAS"):
    pytest.importorskip = _import_or_fail


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Shares the whole suite among two to four processes (pytest-xdist), a file at a time, in its own order.

    What is named on the command line runs in one process, as do installations without pytest-xdist. `-n 0` forbids it.
    """
    whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    is_worker = hasattr(config, "workerinput")  # it comes here too, and must start no workers of its own
    if whole and not is_worker and config.pluginmanager.has_plugin("xdist") and config.option.numprocesses is None:
        config.option.numprocesses = max(2, min(4, os.cpu_count() or 2))
        config.option.dist = "loadfile"
        config.option.loadscopereorder = False
