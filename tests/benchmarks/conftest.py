"""The benchmarks are scripts in one folder; their tests import them the way the scripts import each other."""

import sys
from pathlib import Path

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"

sys.path.insert(0, str(BENCHMARKS))
