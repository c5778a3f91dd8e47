"""Measure which rule detects what: the cases of tests/cases/runs, and two real runs with one value changed at a time.

    python benchmarks/rules.py

The sweep over real runs changes, nulls or removes every value of each document and of some rows, moves rows and removes
files, then recomputes every hash (`tests/support/leaves.py`). What is detected is recorded in two places that
disagree. Writes benchmarks/results/rules.json, from which docs/make_detection.py makes a page.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from statistics import quantiles
from typing import Any

from harness import REPOSITORY, write_json

sys.path.insert(0, str(REPOSITORY / "tests" / "support"))

from leaves import Forger
from mutations import apply, reseal
from synthetic import write_run

from evidence.grade import find_problems
from evidence.run import read_run
from schemas.problems import Problem
from trainer.recorder.environment import environment

CASES = REPOSITORY / "tests" / "cases" / "runs"
REAL = ("tests/corpus/v1/runs/finished", "tests/cases/earlier/demo-smoke")


def check(folder: Path, milliseconds: list[float]) -> list[Problem]:
    """Return the findings of a run, read from disk, and add the time that it took."""
    began = time.perf_counter()
    findings = find_problems(read_run(folder))
    milliseconds.append(1000 * (time.perf_counter() - began))
    return findings


def quartiles(milliseconds: list[float]) -> dict[str, float]:
    """Return median and quartiles."""
    return dict(zip(("from", "median", "to"), (round(each, 2) for each in quantiles(milliseconds)), strict=True))


def check_cases(root: Path) -> dict[str, Any]:
    """Check every broken and every valid case."""
    milliseconds: list[float] = []
    codes = {}
    for case in sorted(path.parent for path in CASES.glob("broken/*/change.json")):
        change = json.loads((case / "change.json").read_text("utf-8"))
        folder = write_run(root / case.name, "run", **change.get("run", {}))
        for each in change["changes"]:
            apply(folder, each)
        if change.get("reseal"):
            reseal(folder, change["changes"])
        codes[case.name] = sorted({one.code for one in check(folder, milliseconds)})
    valid = [json.loads(path.read_text("utf-8"))["run"] for path in sorted(CASES.glob("valid/*/run.json"))]
    folders = [write_run(root / f"valid-{number}", "run", **run) for number, run in enumerate(valid)]
    return {
        "broken": len(codes),
        "found": sum(map(bool, codes.values())),
        "valid": len(valid),
        "valid_with_findings": sum(bool(check(folder, milliseconds)) for folder in folders),
        "check_milliseconds": quartiles(milliseconds),
        "codes": codes,
    }


def sweep(original: Path, root: Path) -> dict[str, Any]:
    """Change a run in every way and return how many changes are detected, and which are not."""
    milliseconds: list[float] = []
    forger = Forger(original, root / original.name)

    def identities() -> set[tuple[Any, ...]]:
        return {(one.code, one.file, one.pointer, one.what) for one in check(forger.folder, milliseconds)}

    known, found = identities(), []
    undetected: dict[str, set[str]] = {}
    for forgery in forger.forgeries():
        forger.commit(forgery)
        found.append(bool(identities() - known))
        if not found[-1]:
            undetected.setdefault(forgery.place, set()).add(forgery.what)
    return {
        "changes": len(found),
        "found": sum(found),
        "rate": round(sum(found) / len(found), 4),
        "found_nowhere": {place: sorted(what) for place, what in sorted(undetected.items())},
        "check_milliseconds": quartiles(milliseconds),
    }


def main() -> None:
    """Check, print and write."""
    real = {}
    with tempfile.TemporaryDirectory() as name:
        cases = check_cases(Path(name) / "cases")
        for path in REAL:
            swept = real[path] = sweep(REPOSITORY / path, Path(name))
            print(f"{path}: {swept['found']} of {swept['changes']} changes detected, {100 * swept['rate']:.1f} %")
    print(f"cases: {cases['found']} of {cases['broken']} detected; {cases['valid_with_findings']} false alarms")
    write_json("rules.json", {"machine": environment(), "cases": cases, "real_runs": real})


if __name__ == "__main__":
    main()
