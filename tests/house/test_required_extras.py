"""The jobs that exist for a package notice when it is not there (`PLUGRL_REQUIRE_EXTRAS`)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SKIPS_ITSELF = "import pytest\n\npytest.importorskip('no_such_module_here', reason='it')\n\n\ndef test_it(): ...\n"


@pytest.mark.parametrize(
    ("required", "code", "says"),
    [("", pytest.ExitCode.NO_TESTS_COLLECTED, "1 skipped"), ("1", pytest.ExitCode.INTERRUPTED, "No module named")],
)
def test_a_missing_package_is_a_skip_or_a_failure(tmp_path, required, code, says):
    (tmp_path / "conftest.py").write_text((ROOT / "conftest.py").read_text())
    (tmp_path / "test_it.py").write_text(SKIPS_ITSELF)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(tmp_path)]
    environment = {**os.environ, "PLUGRL_REQUIRE_EXTRAS": required}
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert ended.returncode == code
    assert says in ended.stdout


@pytest.mark.parametrize("script", ["lerobot", "environments", "recording"])
def test_the_jobs_for_packages_require_them(script):
    assert "PLUGRL_REQUIRE_EXTRAS=1" in (ROOT / ".ci" / script).read_text()
