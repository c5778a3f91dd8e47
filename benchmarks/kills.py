"""What SIGKILLs at random moments leave of a run: 300 kills of the recorder and 40 of the whole trainer.

`tests/support/kills.py` does the killing and says what the two are; the tests run a smaller part of it. Writes
benchmarks/results/kills.json.

    python benchmarks/kills.py
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from typing import Any

KILLS = Path(__file__).parents[1] / "tests" / "support" / "kills.py"
RESULT = Path(__file__).parent / "results" / "kills.json"
ASKED = {"replays": 300, "trainings": 40, "resumed": 5, "seed": 1}


def figures_of(outcomes: list[dict[str, Any]]) -> dict[str, Any]:
    """Return how many kills ended how, and what is wrong with any of them."""
    left = [outcome for outcome in outcomes if outcome["folder"]]
    return {
        "kills": len(outcomes),
        "faster_than_the_kill": sum(outcome["ended"] == 0 for outcome in outcomes),
        "before_the_folder": len(outcomes) - len(left),
        "rows_lost": sum(sum(outcome["lost"].values()) for outcome in left),
        "status_and_grade": counted(f"{outcome['status']}, {outcome['grade']}" for outcome in left),
        "codes_found": counted(" ".join(outcome["codes"]) or "none" for outcome in left),
        "newest_file": counted(outcome["last_file"] or "none" for outcome in left),
    }


def counted(values: Any) -> dict[str, int]:
    """Return how often each value occurs, most frequent first."""
    return dict(Counter(values).most_common())


def main() -> None:
    """Kill, gather, print, write."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        flags = [word for name, value in ASKED.items() for word in (f"--{name}", str(value))]
        done = subprocess.run([sys.executable, str(KILLS), folder, *flags], stdout=subprocess.PIPE, check=True)
    found = json.loads(done.stdout)
    result = {
        "machine": {
            "os": f"{platform.system()} {platform.release()} {platform.machine()}",
            "python": platform.python_version(),
            "cpu_count": os.cpu_count(),
            "packages": {name: version(name) for name in ("trainproof", "jax", "orbax-checkpoint")},
        },
        "seed": ASKED["seed"],
        "seconds": round(time.perf_counter() - began, 1),
        "recorder": figures_of(found["replays"]),
        "trainer": figures_of(found["trainings"]),
        "continued": {
            "runs": len(found["resumed"]),
            "finished_without_errors": sum(each["exit"] == 0 and not each["errors"] for each in found["resumed"]),
            "from_steps": [each["killed"]["checkpoint"] for each in found["resumed"]],
        },
    }
    RESULT.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
