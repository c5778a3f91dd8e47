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
from collections import Counter
from pathlib import Path
from statistics import quantiles
from typing import Any

from harness import REPOSITORY, describe_machine, write_json

sys.path.insert(0, str(REPOSITORY / "tests" / "support"))

from leaves import Forger
from mutations import apply, reseal
from synthetic import write_run

from evidence.grade import find_problems
from evidence.run import read_run
from schemas.problems import Problem

CASES = REPOSITORY / "tests" / "cases" / "runs"
REAL = ("tests/corpus/v1/runs/finished", "tests/cases/earlier/demo-smoke")


class Checker:
    """Check runs and record the time of each check."""

    def __init__(self) -> None:
        self.milliseconds: list[float] = []

    def check(self, folder: Path) -> list[Problem]:
        """Return the findings of a run, read from disk."""
        began = time.perf_counter()
        findings = find_problems(read_run(folder))
        self.milliseconds.append(1000 * (time.perf_counter() - began))
        return findings

    def times(self) -> dict[str, float]:
        """Return median and quartiles."""
        return dict(
            zip(("from", "median", "to"), (round(each, 2) for each in quantiles(self.milliseconds)), strict=True)
        )


def check_cases(root: Path) -> dict[str, Any]:
    """Check every broken and every valid case."""
    checker, codes = Checker(), {}
    for case in sorted(path.parent for path in CASES.glob("broken/*/change.json")):
        change = json.loads((case / "change.json").read_text("utf-8"))
        folder = write_run(root / case.name, "run", **change.get("run", {}))
        for each in change["changes"]:
            apply(folder, each)
        if change.get("reseal"):
            reseal(folder, change["changes"])
        codes[case.name] = sorted({one.code for one in checker.check(folder)})
    valid = [json.loads(path.read_text("utf-8"))["run"] for path in sorted(CASES.glob("valid/*/run.json"))]
    folders = [write_run(root / f"valid-{number}", "run", **run) for number, run in enumerate(valid)]
    return {
        "broken": len(codes),
        "found": sum(map(bool, codes.values())),
        "valid": len(valid),
        "valid_with_findings": sum(bool(checker.check(folder)) for folder in folders),
        "check_milliseconds": checker.times(),
        "codes": codes,
    }


def sweep(original: Path, root: Path) -> dict[str, Any]:
    """Change a run in every way and return how many changes are detected, by kind and code, and which are not."""
    checker, forger = Checker(), Forger(original, root / original.name)

    def identities() -> dict[tuple[Any, ...], str]:
        return {(one.code, one.file, one.pointer, one.what): one.code for one in checker.check(forger.folder)}

    known, tried, found, by_code = identities().keys(), Counter[str](), Counter[str](), Counter[str]()
    undetected: dict[str, set[str]] = {}
    for forgery in forger.forgeries():
        forger.commit(forgery)
        codes = {code for identity, code in identities().items() if identity not in known}
        tried[forgery.what] += 1
        found[forgery.what] += bool(codes)
        by_code.update(codes)
        if not codes:
            undetected.setdefault(forgery.place, set()).add(forgery.what)
    return {
        "changes": tried.total(),
        "found": found.total(),
        "rate": round(found.total() / tried.total(), 4),
        "by_kind": {what: {"changes": tried[what], "found": found[what]} for what in tried},
        "by_code": dict(sorted(by_code.items())),
        "found_nowhere": {place: sorted(what) for place, what in sorted(undetected.items())},
        "check_milliseconds": checker.times(),
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
    machine = describe_machine("trainproof", "jsonschema-rs")
    write_json("rules.json", {"machine": machine, "cases": cases, "real_runs": real})


if __name__ == "__main__":
    main()
