"""The toy learner must be importable by name in the processes that are started."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
