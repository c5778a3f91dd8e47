"""Kill the recorder 300 times and the trainer 40 times at random moments, and check the interrupted runs.

    python benchmarks/kills.py

`tests/support/kills.py` does the killing; the tests run a smaller part of it. Writes benchmarks/results/kills.json.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections import Counter
from typing import Any

from harness import REPOSITORY, describe_machine, read_printed, write_json

KILLS = REPOSITORY / "tests" / "support" / "kills.py"
COUNTS = {"replays": 300, "trainings": 40, "resumed": 5, "seed": 1}


def summarize(outcomes: list[dict[str, Any]]) -> dict[str, Any]:
    """Return how the kills ended, and all findings."""
    runs = [outcome for outcome in outcomes if outcome["folder"]]
    return {
        "kills": len(outcomes),
        "faster_than_the_kill": sum(outcome["ended"] == 0 for outcome in outcomes),
        "before_the_folder": len(outcomes) - len(runs),
        "rows_lost": sum(sum(outcome["lost"].values()) for outcome in runs),
        "status_and_grade": Counter(f"{outcome['status']}, {outcome['grade']}" for outcome in runs),
        "codes_found": Counter(" ".join(outcome["codes"]) or "none" for outcome in runs),
        "newest_file": Counter(outcome["last_file"] or "none" for outcome in runs),
    }


def main() -> None:
    """Kill, summarize, print and write."""
    began = time.perf_counter()
    flags = [word for name, value in COUNTS.items() for word in (f"--{name}", str(value))]
    with tempfile.TemporaryDirectory() as folder:
        found = read_printed([sys.executable, str(KILLS), folder, *flags])
    result = {
        "machine": describe_machine("trainproof", "jax", "orbax-checkpoint"),
        "seed": COUNTS["seed"],
        "seconds": round(time.perf_counter() - began, 1),
        "recorder": summarize(found["replays"]),
        "trainer": summarize(found["trainings"]),
        "continued": {
            "runs": len(found["resumed"]),
            "finished_without_errors": sum(each["exit"] == 0 and not each["errors"] for each in found["resumed"]),
            "from_steps": [each["killed"]["checkpoint"] for each in found["resumed"]],
        },
    }
    write_json("kills.json", result)
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
