"""The numbers that a run states about itself, computed again from its rows.

The trainer states them with these functions and the checker holds what is stated against them, so that there is one
definition of each. What does not live here: comparing (`evidence.rules.contradiction`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from evidence.statistics import standard_error, wilson_interval

GROUPINGS = ("section", "category", "difficulty")
"""The fields of an evaluation item by which scores are also stated."""


def result_of(metric_rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the fields of the manifest's `result` that follow from the rows of metrics.jsonl.

    `last`, `mean` and `best` are different numbers. For losses 4, 1, 2 at steps 1, 2, 3: first 4, last 2, mean 7/3,
    best 1 at step 2. A row whose loss is null (not finite) counts for neither mean nor best.

    Args:
        metric_rows: Rows in file order, each with `step`, `tokens_seen` and `loss`.

    Returns:
        `first_loss`, `last_loss`, `mean_loss`, `best_loss`, `best_step`, `tokens_seen`; every one None without rows.
    """
    measured = [row for row in metric_rows if row["loss"] is not None]
    best = min(measured, key=lambda row: float(row["loss"]), default=None)
    return {
        "first_loss": metric_rows[0]["loss"] if metric_rows else None,
        "last_loss": metric_rows[-1]["loss"] if metric_rows else None,
        "mean_loss": math.fsum(row["loss"] for row in measured) / len(measured) if measured else None,
        "best_loss": best["loss"] if best else None,
        "best_step": best["step"] if best else None,
        "tokens_seen": metric_rows[-1]["tokens_seen"] if metric_rows else None,
    }


def scores_of(prediction_rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return `metrics` and `groups` as eval_summary.json states them, from the rows of predictions.jsonl.

    An item without an output (`error` is not null) is counted in `n` and counts as wrong: 3 right of 3 outputs and
    1 error is 0.75, not 1.
    """
    groups: dict[str, dict[str, Any]] = {}
    for grouping in GROUPINGS:
        members: dict[str, list[dict[str, Any]]] = {}
        for row in prediction_rows:
            if row.get(grouping) is not None:
                members.setdefault(row[grouping], []).append(row)
        groups[grouping] = {name: _metrics(members[name]) for name in sorted(members)}
    return {"metrics": _metrics(prediction_rows), "groups": groups}


def _metrics(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {"exact_match": _metric(rows, "correct"), "format_compliance": _metric(rows, "format_ok")}


def _metric(rows: Sequence[dict[str, Any]], flag: str) -> dict[str, Any]:
    n = len(rows)
    errors = sum(row["error"] is not None for row in rows)
    successes = sum(bool(row[flag]) and row["error"] is None for row in rows)
    metric: dict[str, Any] = {"value": None, "n": n, "n_scored": n - errors, "n_errors": errors}
    if n == 0:
        return metric | {"standard_error": None, "interval": None}
    value = successes / n
    low, high = wilson_interval(successes, n)
    return metric | {
        "value": value,
        "standard_error": standard_error(successes, n),
        "interval": {"low": low, "high": high, "level": 0.95, "method": "wilson"},
    }
