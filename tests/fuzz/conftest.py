"""The fuzzing modules are scripts in one folder; their tests import them the way the scripts import each other."""

import sys
from pathlib import Path

FUZZ = Path(__file__).resolve().parents[2] / "fuzz"

sys.path.insert(0, str(FUZZ))
