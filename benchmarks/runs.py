"""How fast runs are listed and checked; run it with `python benchmarks/runs.py`.

Prints the table that is kept in benchmarks/results/runs.txt. Goals: 2,000 runs listed in 6 s, and again in 0.3 s after
one changed; 2,000 runs checked in 20 s on two processors; a run of 1,000,000 rows checked.
"""

from __future__ import annotations

import os
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

from synthetic import STARTED, write_run

from evidence.check import check_paths, check_run
from evidence.index import RunIndex
from evidence.read import read_run

RUNS = 2000
ITEMS = 100
LONG_STEPS = 1_000_000


def processor_seconds() -> float:
    """Return the processor time of this process and of those it started and waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def timed(what: str, act: Callable[[], object]) -> None:
    """Print how long an act takes on the clock and on the processors."""
    wall, work = time.perf_counter(), processor_seconds()
    act()
    wall, work = time.perf_counter() - wall, processor_seconds() - work
    print(f"{what:<52}{wall:>8.2f} s  {work:>8.2f} processor seconds", flush=True)


def main() -> None:
    """Write the runs and time every way to look at them."""
    chance = random.Random(1)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "runs"
        for number in range(RUNS):
            started = STARTED + timedelta(minutes=number)
            write_run(root, f"run-{number}", seed=number, steps=chance.randint(200, 1000), items=ITEMS, started=started)
        print(f"{os.cpu_count()} processors; {RUNS:,} runs of 200 to 1,000 rows and 2 × {ITEMS} predictions")
        index = RunIndex(root)
        timed("list all runs", index.refresh)
        timed("list them again, nothing changed", index.refresh)
        (root / "run-7" / "config.yaml").touch()
        timed("list them again, one changed", index.refresh)
        timed("check all runs", lambda: check_paths([root]))
        long = write_run(Path(folder) / "long", "long", steps=LONG_STEPS)
        timed(f"check one run of {LONG_STEPS:,} rows", lambda: check_run(read_run(long)))


if __name__ == "__main__":
    main()
