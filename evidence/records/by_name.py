"""Every setting and every figure of a run by its name, so that any of them can be a column, a condition or an axis."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from typing import Any

from evidence.records.facts import Document, Facts
from schemas.catalog import number_names

Scalar = str | int | float | bool | None


def flatten(value: Document, prefix: str = "") -> dict[str, Any]:
    """Return nested settings by dotted path: `{"a": {"b": 3}}` becomes `{"a.b": 3}`. Lists stay whole."""
    flat: dict[str, Any] = {}
    for key, inner in value.items():
        if isinstance(inner, dict) and inner:
            flat |= flatten(inner, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = inner
    return flat


def settings_of(facts: Facts) -> dict[str, Scalar]:
    """Return every setting of a valid config.yaml that is one value, by dotted path: `optimizer.learning_rate`."""
    flat = flatten(facts.config or {})
    # A list of runs holds thousands of these; each name exists once.
    return {sys.intern(name): value for name, value in flat.items() if not isinstance(value, list | dict)}


def figures_of(facts: Facts) -> dict[str, float]:
    """Return the figures of a run that were measured, by name.

    `last.loss` is a field of the last row of metrics.jsonl, `result.mean_loss` a field of the manifest's result,
    `score.exact_match` a metric of eval_summary.json, and `baseline.exact_match` that of the untrained model.

    Args:
        facts: What may be shown of a run (`evidence.judge.record`).
    """
    named: dict[str, Any] = {}
    if facts.metrics:
        last = facts.metrics[-1]
        named |= {f"last.{name}": last.get(name) for name in number_names()}
    if facts.manifest is not None:
        named |= {f"result.{name}": value for name, value in facts.manifest["result"].items()}
    if facts.eval_summary is not None:
        named |= _scores("score", facts.eval_summary)
        named |= _scores("baseline", facts.eval_summary["baseline"] or {"metrics": {}})
    return {sys.intern(name): float(value) for name, value in named.items() if _is_figure(value)}


def _scores(prefix: str, evaluated: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{prefix}.{name}": metric["value"] for name, metric in evaluated["metrics"].items()}


def _is_figure(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
