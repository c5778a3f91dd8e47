"""How fast runs are listed and checked; run it with `python benchmarks/runs.py`.

Goals on two processors: 2,000 runs checked in 20 s, 1,000,000 metric rows in 3 s; 2,000 runs listed in 6 s, and in
0.3 s after one changed. Every act is timed three times on one corpus. Writes benchmarks/results/runs.json.
"""

from __future__ import annotations

import json
import os
import platform
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

from synthetic import STARTED, write_run

from evidence.grade import find_problems
from evidence.index.index import RunIndex, check_paths
from evidence.run import read_run

RESULT = Path(__file__).parent / "results" / "runs.json"
RUNS = 2000
ITEMS = 100
LONG_STEPS = 1_000_000
REPEAT = 3


def processor_seconds() -> float:
    """Return the processor time of this process and of those it started and waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def timed(what: str, act: Callable[[], object]) -> dict[str, float]:
    """Print and return how long an act takes on the clock and on the processors, of several times."""
    walls, works = [], []
    for _ in range(REPEAT):
        wall, work = time.perf_counter(), processor_seconds()
        act()
        walls.append(time.perf_counter() - wall)
        works.append(processor_seconds() - work)
    print(f"{what:<44}{median(walls):>8.2f} s ({min(walls):.2f} to {max(walls):.2f})", flush=True)
    spread = {"median": median(walls), "min": min(walls), "max": max(walls), "processor": median(works)}
    return {name: round(value, 3) for name, value in spread.items()}


def main() -> None:
    """Write the runs and time every way to look at them."""
    chance = random.Random(1)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "runs"
        for number in range(RUNS):
            started = STARTED + timedelta(minutes=number)
            write_run(root, f"run-{number}", seed=number, steps=chance.randint(200, 1000), items=ITEMS, started=started)
        long = write_run(Path(folder) / "long", "long", steps=LONG_STEPS)
        index = RunIndex(root)
        index.refresh()

        def list_after_one_changed() -> None:
            (root / "run-7" / "config.yaml").touch()
            index.refresh()

        seconds = {
            "check_all": timed("check all runs", lambda: check_paths([root])),
            "check_a_million_rows": timed("check a run of 1,000,000 rows", lambda: find_problems(read_run(long))),
            "list_all": timed("list all runs", lambda: RunIndex(root).refresh()),
            "list_one_changed": timed("list them again, one changed", list_after_one_changed),
            "list_unchanged": timed("list them again, nothing changed", index.refresh),
        }
    about = {
        "date": time.strftime("%Y-%m-%d"),
        "processors": os.cpu_count(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in ("trainproof", "numpy", "jsonschema-rs")},
        "corpus": f"{RUNS} runs of 200 to 1,000 rows and 2 times {ITEMS} predictions",
    }
    RESULT.write_text(json.dumps({"about": about, "seconds": seconds}, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
