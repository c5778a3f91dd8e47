"""What a run gained over its untrained model, from the answers that it states."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from evidence import layout
from evidence.scores.intervals import PairedTable, paired_difference_interval, wilson_interval

READINGS = {"strict": "correct", "lenient": "lenient_correct"}
"""Keys of an answer, by how it is read."""


def scores_of(run: Path, kind_of: Callable[[str], str]) -> dict[str, Any]:
    """Return right answers before and after training, with 95 % intervals, and the gain, for each reading.

    Args:
        run: folder of the run.
        kind_of: gives the kind of task of a prompt.
    """
    before, after = (answers(run / name) for name in (layout.BASELINE_PREDICTIONS, layout.PREDICTIONS))
    found: dict[str, Any] = {"items": len(after), "kinds": {}}
    for reading, key in READINGS.items():
        found[reading] = {
            "untrained": share([row[key] for row in before.values()]),
            "trained": share([row[key] for row in after.values()]),
            "gain": gain([(before[name][key], after[name][key]) for name in after]),
        }
    for kind in sorted({kind_of(row["prompt"]) for row in after.values()}):
        of_kind = [name for name, row in after.items() if kind_of(row["prompt"]) == kind]
        found["kinds"][kind] = {"items": len(of_kind)} | {
            reading: {
                "untrained": sum(before[name][key] for name in of_kind),
                "trained": sum(after[name][key] for name in of_kind),
            }
            for reading, key in READINGS.items()
        }
    return found


def answers(path: Path) -> Mapping[str, dict[str, Any]]:
    """Return the answers in a file by id."""
    return {row["id"]: row for row in map(json.loads, path.read_text().splitlines())}


def share(right: list[bool]) -> dict[str, Any]:
    """Return the share of right answers."""
    low, high = wilson_interval(sum(right), len(right))
    return {"right": sum(right), "value": sum(right) / len(right), "low": round(low, 4), "high": round(high, 4)}


def gain(pairs: list[tuple[bool, bool]]) -> dict[str, float]:
    """Return the difference of two models on the same items."""
    table = PairedTable(
        both=pairs.count((True, True)),
        only_first=pairs.count((True, False)),
        only_second=pairs.count((False, True)),
        neither=pairs.count((False, False)),
    )
    low, high = paired_difference_interval(table)
    return {"value": round(table.difference, 4), "low": round(low, 4), "high": round(high, 4)}
