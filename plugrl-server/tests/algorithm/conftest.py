"""The bandit must be importable by name in the tests of every algorithm."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
