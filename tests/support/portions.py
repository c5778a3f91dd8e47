"""How tests are divided among workers: a few of a file at a time, and together all that share what a module prepares.

Whole files are too coarse, since one of a minute at the end leaves the other workers without work; single tests would
prepare what a module shares in every worker.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from _pytest.nodeid import NodeId

TOGETHER = 8
"""Tests of one file that go to a worker at a time."""


def divide(items: list[pytest.Item], *, grouped: bool) -> None:
    """Sort those with slow tests to the front, and put its portion behind the name of each, for `--dist loadgroup`.

    xdist 3.8 does the latter for the mark `xdist_group`, in a place where pytest 9.2 no longer looks.

    Args:
        items: the tests.
        grouped: whether this is a worker of a run with `--dist loadgroup`.
    """
    seen: Counter[str] = Counter()
    portions = {}
    for item in items:
        file = item.path.name
        if item.get_closest_marker("slow") and not _shares(item):
            portion = f"{file}-{item.name}"
        elif _shares(item):
            portion = file
        else:
            portion = f"{file}-{seen[str(item.path)] // TOGETHER}"
            seen[str(item.path)] += 1
        portions[item] = f"{item.path.parent.name}/{portion}"
        if grouped:
            item._id = NodeId.parse(f"{item.nodeid}@{portions[item]}")
    slow = {portions[item] for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: portions[item] not in slow)


def _shares(item: Any) -> bool:
    """Return whether a test uses anything that its module prepares once."""
    prepared = item._fixtureinfo.name2fixturedefs.values()
    return any(each.scope == "module" for definitions in prepared for each in definitions)
