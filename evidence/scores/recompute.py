"""The numbers that a run states about itself, computed again from its rows.

The trainer states them with these functions and the checker holds what is stated against them, so that there is one
definition of each.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from evidence.scores.clusters import BY_PROMPT, clustered_error, clustered_wilson, clusters_of
from evidence.scores.proportions import standard_error, wilson_interval
from evidence.scores.samples import sampled_scores
from schemas.reading import Array, column

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
    losses = column(metric_rows, "loss")
    measured = losses[np.isfinite(losses)].tolist()
    best = metric_rows[int(np.nanargmin(losses))] if measured else None
    return {
        "first_loss": metric_rows[0]["loss"] if metric_rows else None,
        "last_loss": metric_rows[-1]["loss"] if metric_rows else None,
        "mean_loss": math.fsum(measured) / len(measured) if measured else None,
        "best_loss": best["loss"] if best else None,
        "best_step": best["step"] if best else None,
        "tokens_seen": metric_rows[-1]["tokens_seen"] if metric_rows else None,
    }


def learning_rates(optimizer: dict[str, Any], at: Array, steps: int) -> Array:
    """Return the learning rate that the update of each step uses, by the definition of the configuration's schedules.

    Warm-up: step s (from 1) of w uses `peak · s / w`. After it, with p from 0 at the first step after the warm-up to 1
    at the last step, and f the final fraction: constant `peak`, linear `peak · (f + (1 − f) (1 − p))`, cosine
    `peak · (f + (1 − f) (1 + cos πp) / 2)`. For peak 1, w = 2, 5 steps, linear, f = 0: 0.5, 1, 1, 0.5, 0.

    Args:
        optimizer: The group `optimizer` of config.yaml.
        at: `[rows]` optimizer steps, counted from 1.
        steps: Steps planned.
    """
    peak, warmup = optimizer["learning_rate"], optimizer["warmup_steps"]
    part = np.minimum((at - 1 - warmup) / max(steps - warmup - 1, 1), 1.0)
    final = optimizer["final_learning_rate_fraction"]
    left = {"constant": np.ones_like(part), "linear": 1 - part, "cosine": (1 + np.cos(np.pi * part)) / 2}
    after = peak * (final + (1 - final) * left[optimizer["schedule"]])
    rates: Array = np.where(at <= warmup, peak * at / max(warmup, 1), after)
    return rates


def scores_of(prediction_rows: Sequence[dict[str, Any]], samples: int = 1, *, by_prompt: bool = True) -> dict[str, Any]:
    """Return `metrics` and `groups` as eval_summary.json states them, from the rows of predictions.jsonl.

    With several samples of each item `metrics` is of the first, which is one draw as a user gets it, so that paired
    tests and curves hold; `sampled` is of all of them.

    An item without an output (`error` is not null) is counted in `n` and counts as wrong: 3 right of 3 outputs and
    1 error is 0.75, not 1. Where items share a `group` or a prompt, standard errors and intervals take the clusters as
    the independent pieces, and every metric states of how many clusters it is.

    Args:
        prediction_rows: Rows in file order.
        samples: Answers to each item.
        by_prompt: Take equal prompts as one cluster. False: as earlier versions did, which state another method.
    """
    clusters, method = clusters_of(prediction_rows, by_prompt=by_prompt)
    whole = Count(method)
    groups = {grouping: defaultdict[str, Count](partial(Count, method)) for grouping in GROUPINGS}
    for row, cluster in zip(prediction_rows, clusters, strict=True):
        whole.add(row, cluster)
        for grouping, members in groups.items():
            name = row.get(grouping)
            if name is not None:
                members[name].add(row, cluster)
    return {
        "metrics": whole.metrics(),
        "groups": {
            grouping: {name: members[name].metrics() for name in sorted(members)}
            for grouping, members in groups.items()
        },
        **({"sampled": sampled_scores(prediction_rows, samples, by_prompt=by_prompt)} if samples > 1 else {}),
    }


def counts_prompts_once(stated: Mapping[str, Any]) -> bool:
    """Return whether stated scores take equal prompts as one cluster; those of earlier versions did not."""
    interval = stated["metrics"]["exact_match"]["interval"]
    return interval is None or interval["method"] == BY_PROMPT


class Count:
    """Answers counted so far: all, those without an output, the right ones, those of the right form.

    Args:
        method: of the interval.
    """

    def __init__(self, method: str) -> None:
        self.n = self.errors = self.correct = self.format_ok = 0
        self.method = method
        self.clusters: list[int] = []
        self.lenient: int | None = None
        """Right leniently. None: no row states it, as those of earlier versions."""
        self.verdicts: list[tuple[bool, bool, bool]] = []

    def add(self, row: dict[str, Any], cluster: int) -> None:
        """Count one prediction row; without an output it is neither right nor of the right form."""
        answered = row["error"] is None
        correct, format_ok = answered and bool(row["correct"]), answered and bool(row["format_ok"])
        self.n += 1
        self.errors += not answered
        self.correct += correct
        lenient = answered and bool(row.get("lenient_correct"))
        if "lenient_correct" in row:
            self.lenient = (self.lenient or 0) + lenient
        self.format_ok += format_ok
        self.clusters.append(cluster)
        self.verdicts.append((correct, format_ok, lenient))

    def metrics(self) -> dict[str, Any]:
        """Return the metrics with their intervals: strict, of form and, where rows have it, lenient."""
        lenient = {} if self.lenient is None else {"lenient_match": self._metric(self.lenient, 2)}
        strict = {"exact_match": self._metric(self.correct, 0), "format_compliance": self._metric(self.format_ok, 1)}
        return strict | lenient

    def _metric(self, successes: int, which: int) -> dict[str, Any]:
        metric: dict[str, Any] = {
            "value": None,
            "n": self.n,
            "n_scored": self.n - self.errors,
            "n_errors": self.errors,
            "standard_error": None,
            "interval": None,
        }
        if self.n == 0:
            return metric
        if self.method == "wilson":
            low, high = wilson_interval(successes, self.n)
            error: float | None = standard_error(successes, self.n)
        else:
            error, groups = clustered_error([verdict[which] for verdict in self.verdicts], self.clusters)
            low, high = clustered_wilson(error, successes, self.n, groups)
            metric["clusters"] = groups
        return metric | {
            "value": successes / self.n,
            "standard_error": error,
            "interval": {"low": low, "high": high, "level": 0.95, "method": self.method},
        }
