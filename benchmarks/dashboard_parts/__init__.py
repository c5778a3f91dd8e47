"""The parts of `benchmarks/dashboard.py`. The synthetic runs and the browser are those of the tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "support"))
