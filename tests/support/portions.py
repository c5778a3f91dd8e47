"""How tests are divided among workers: a few of a file at a time, and together all that share what a module prepares.

Whole files are too coarse, since one of a minute at the end leaves the other workers without work; single tests would
prepare what a module shares in every worker.
"""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from _pytest.nodeid import NodeId

TOGETHER = 8
"""Tests of one file that go to a worker at a time."""


RECORDED = Path(__file__).parents[2] / "benchmarks" / "results" / "test_seconds.json"


def divide(items: list[pytest.Item], *, grouped: bool) -> None:
    """Put the portion behind the name of each test, for `--dist loadgroup`, and the longest portions first.

    xdist 3.8 does the former for the mark `xdist_group`, in a place where pytest 9.2 no longer looks.

    Args:
        items: the tests.
        grouped: whether this is a worker of a run with `--dist loadgroup`.
    """
    files = json.loads(RECORDED.read_text())["files"] if RECORDED.exists() else {}
    seconds = {name: file["wall"] / file["tests"] for name, file in files.items()}
    seen: Counter[str] = Counter()
    portions = {}
    lasting: Counter[str] = Counter()
    for item in items:
        file = item.path.name
        if _shares(item):
            portion = file
        elif item.get_closest_marker("slow"):
            portion = f"{file}-{item.name}"
        else:
            portion = f"{file}-{seen[str(item.path)] // TOGETHER}"
            seen[str(item.path)] += 1
        portions[item] = f"{item.path.parent.name}/{portion}".replace("@", "")
        lasting[portions[item]] += seconds.get(item.nodeid.partition("::")[0], 0)
        if grouped:
            item._id = NodeId.parse(f"{item.nodeid}@{portions[item]}")
    items.sort(key=lambda item: -lasting[portions[item]])


class PlainNames:
    """Takes the portion off the names in reports, by which pytest remembers what failed: `--last-failed` needs them."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        report.nodeid = report.nodeid.rpartition("@")[0] or report.nodeid


def _shares(item: Any) -> bool:
    """Return whether a test uses anything that its module prepares once."""
    prepared = item._fixtureinfo.name2fixturedefs.values()
    return any(each.scope == "module" for definitions in prepared for each in definitions)
