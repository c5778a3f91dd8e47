"""Which rule catches what: every change of tests/cases/runs, and every value of real runs changed once.

The second part is a forger's: each value of each document and of some rows is made another, null or nothing, rows are
moved and files removed, and then every hash is made to fit (`tests/support/leaves.py`). Whatever is found is found
because two places state the same fact. Writes benchmarks/results/rules.json; docs/make_detection.py makes a page of it.

    python benchmarks/rules.py
"""

from __future__ import annotations

import json
import os
import platform
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from statistics import median, quantiles
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

from leaves import Forger
from mutations import apply, reseal
from synthetic import write_run

from evidence.grade import find_problems
from evidence.run import read_run
from schemas.problems import Problem

REPOSITORY = Path(__file__).parents[1]
CASES = REPOSITORY / "tests" / "cases" / "runs"
RESULT = REPOSITORY / "benchmarks" / "results" / "rules.json"
REAL = ("tests/corpus/v1/runs/finished", "tests/cases/earlier/demo-smoke")


class Clock:
    """Checks runs and keeps how long each took."""

    def __init__(self) -> None:
        self.milliseconds: list[float] = []

    def check(self, folder: Path) -> list[Problem]:
        """Return the findings of a run, read from the disk."""
        began = time.perf_counter()
        findings = find_problems(read_run(folder))
        self.milliseconds.append(1000 * (time.perf_counter() - began))
        return findings

    def figures(self) -> dict[str, float]:
        """Return the median and the quartiles of the times."""
        low, _, high = quantiles(self.milliseconds, n=4)
        return {"median": round(median(self.milliseconds), 2), "from": round(low, 2), "to": round(high, 2)}


def cases(root: Path, clock: Clock) -> dict[str, Any]:
    """Return what is found in every broken case, and in every valid one."""
    broken, valid = {}, {}
    for case in sorted(path.parent for path in CASES.glob("broken/*/change.json")):
        asked = json.loads((case / "change.json").read_text("utf-8"))
        folder = write_run(root / case.name, "run", **asked.get("run", {}))
        for change in asked["changes"]:
            apply(folder, change)
        if asked.get("reseal"):
            reseal(folder, asked["changes"])
        broken[case.name] = codes(clock.check(folder))
    for case in sorted(path.parent for path in CASES.glob("valid/*/run.json")):
        asked = json.loads((case / "run.json").read_text("utf-8"))
        valid[case.name] = codes(clock.check(write_run(root / case.name, "run", **asked["run"])))
    return {"broken": broken, "valid": valid}


def sweep(original: Path, root: Path, clock: Clock) -> dict[str, Any]:
    """Return how many changes of a run are found, by kind, by which codes, and where none is."""
    forger = Forger(original, root / original.name)
    known = {identity(one) for one in clock.check(forger.folder)}
    tried: Counter[str] = Counter()
    found: Counter[str] = Counter()
    by: Counter[str] = Counter()
    unseen: dict[str, set[str]] = {}
    for forgery in forger.forgeries():
        forger.commit(forgery)
        new = [one for one in clock.check(forger.folder) if identity(one) not in known]
        tried[forgery.what] += 1
        if new:
            found[forgery.what] += 1
            by.update({one.code for one in new})
        else:
            unseen.setdefault(forgery.place, set()).add(forgery.what)
    return {
        "changes": tried.total(),
        "found": found.total(),
        "rate": round(found.total() / tried.total(), 4),
        "by_kind": {what: {"changes": tried[what], "found": found[what]} for what in tried},
        "by_code": dict(sorted(by.items())),
        "found_nowhere": {place: sorted(what) for place, what in sorted(unseen.items())},
    }


def identity(problem: Problem) -> tuple[Any, ...]:
    """Return what tells one finding from another."""
    return problem.code, problem.file, problem.pointer, problem.what


def codes(findings: list[Problem]) -> list[str]:
    """Return the codes of findings, each once."""
    return sorted({one.code for one in findings})


def timed(act: Callable[[Clock], Any]) -> tuple[Any, dict[str, float]]:
    """Return what an act gives, and the times of its checks."""
    clock = Clock()
    return act(clock), clock.figures()


def main() -> None:
    """Change, check, gather, print, write."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        made, case_times = timed(lambda clock: cases(root / "cases", clock))
        real = {}
        for path in REAL:
            swept, times = timed(lambda clock, path=path: sweep(REPOSITORY / path, root, clock))
            real[path] = swept | {"check_milliseconds": times}
            print(f"{path:<40} {swept['found']:>5} of {swept['changes']:>5} found, {100 * swept['rate']:.1f} %")
    found = sum(bool(found) for found in made["broken"].values())
    false = sum(bool(found) for found in made["valid"].values())
    print(f"{'cases':<40} {found:>5} of {len(made['broken']):>5} found; {false} of {len(made['valid'])} valid runs")
    result = {
        "machine": {
            "os": f"{platform.system()} {platform.release()} {platform.machine()}",
            "python": platform.python_version(),
            "cpu_count": os.cpu_count(),
            "packages": {one: version(one) for one in ("trainproof", "jsonschema-rs")},
        },
        "cases": {
            "broken": len(made["broken"]),
            "found": found,
            "valid": len(made["valid"]),
            "valid_with_findings": false,
            "check_milliseconds": case_times,
            "codes": made["broken"],
        },
        "real_runs": real,
    }
    RESULT.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
