"""Compute the figures that a run states from its own rows.

The trainer writes these figures and the checker computes them again, so there is one definition of each.
"""

from __future__ import annotations

import hashlib
import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from evidence.scores.intervals import (
    BY_PROMPT,
    clustered_error,
    clustered_wilson,
    find_clusters,
    standard_error,
    wilson_interval,
)
from evidence.scores.reading import Scoring
from schemas.reading import Array, column

Row = Mapping[str, Any]

GROUPINGS = ("section", "category", "difficulty")
"""Fields of an evaluation item by which scores are grouped."""
MORE_SAMPLES = "more_samples"
"""Field of a prediction row that holds the answers after the first."""
_METRICS = {"exact_match": "correct", "format_compliance": "format_ok", "lenient_match": "lenient_correct"}
"""Metrics of an evaluation, and the field of a prediction row that each counts."""
FORM_GAP = 0.2
"""Fraction of answers that are right only leniently from which `describe_form_losses` reports it."""


def compute_result(metric_rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Compute the fields of the manifest's `result` that follow from metrics.jsonl.

    `last`, `mean` and `best` are different numbers. For losses 4, 1, 2 at steps 1, 2, 3: first 4, last 2, mean 7/3,
    best 1 at step 2. A row whose loss is null (not finite) counts for neither mean nor best.

    Args:
        metric_rows: Rows in file order, each with `step`, `tokens_seen` and `loss`.

    Returns:
        `first_loss`, `last_loss`, `mean_loss`, `best_loss`, `best_step` and `tokens_seen`; all None without rows.
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
    """Compute the learning rate of each optimizer step from the configured schedule.

    Warm-up: step s (from 1) of w uses `peak · s / w`. After it, with p from 0 at the first step after the warm-up to 1
    at the last step, and f the final fraction: constant `peak`, linear `peak · (f + (1 − f) (1 − p))`, cosine
    `peak · (f + (1 − f) (1 + cos πp) / 2)`. For peak 1, w = 2, 5 steps, linear, f = 0: 0.5, 1, 1, 0.5, 0.

    Args:
        optimizer: The group `optimizer` of config.yaml.
        at: `[rows]` optimizer steps, counted from 1.
        steps: Number of planned steps.
    """
    peak, warmup = optimizer["learning_rate"], optimizer["warmup_steps"]
    part = np.minimum((at - 1 - warmup) / max(steps - warmup - 1, 1), 1.0)
    final = optimizer["final_learning_rate_fraction"]
    left = {"constant": np.ones_like(part), "linear": 1 - part, "cosine": (1 + np.cos(np.pi * part)) / 2}
    after = peak * (final + (1 - final) * left[optimizer["schedule"]])
    rates: Array = np.where(at <= warmup, peak * at / max(warmup, 1), after)
    return rates


def compute_scores(rows: Sequence[Row], samples: int = 1, *, by_prompt: bool = True) -> dict[str, Any]:
    """Compute `metrics`, `groups` and `sampled` of eval_summary.json from the rows of predictions.jsonl.

    With several samples per item, `metrics` is of the first sample and `sampled` of all of them. An item without an
    output (`error` is not null) counts as wrong: 3 right of 3 outputs and 1 error is 0.75. If items share a group or a
    prompt, standard errors and intervals are clustered, and each metric states the number of clusters.

    Args:
        rows: Prediction rows in file order.
        samples: Number of answers to each item.
        by_prompt: Whether equal prompts are one cluster. Earlier versions did not do this and state another method.
    """
    clusters, method = find_clusters(rows, by_prompt=by_prompt)
    members: dict[str, dict[str, list[int]]] = {grouping: defaultdict(list) for grouping in GROUPINGS}
    for number, row in enumerate(rows):
        for grouping, named in members.items():
            if (name := row.get(grouping)) is not None:
                named[name].append(number)

    def metrics(numbers: Sequence[int]) -> dict[str, Any]:
        return _metrics([rows[number] for number in numbers], [clusters[number] for number in numbers], method)

    return {
        "metrics": metrics(range(len(rows))),
        "groups": {
            grouping: {name: metrics(named[name]) for name in sorted(named)} for grouping, named in members.items()
        },
        **({"sampled": _sampled_scores(rows, samples, clusters, method)} if samples > 1 else {}),
    }


def is_clustered_by_prompt(stated: Row) -> bool:
    """Return whether stated scores treat equal prompts as one cluster, which earlier versions did not."""
    interval = stated["metrics"]["exact_match"]["interval"]
    return interval is None or interval["method"] == BY_PROMPT


def is_right(row: Row) -> bool:
    """Return whether a prediction counts as correct. An item without an output does not."""
    return bool(row["correct"]) and row["error"] is None


def _metrics(rows: Sequence[Row], clusters: Sequence[Hashable], method: str) -> dict[str, Any]:
    """Compute each metric of some rows. `lenient_match` is left out if no row states it, as in earlier versions."""
    answered = [row["error"] is None for row in rows]
    found: dict[str, Any] = {}
    for name, field in _METRICS.items():
        if field == "lenient_correct" and not any(field in row for row in rows):
            continue
        right = [is_answered and bool(row.get(field)) for is_answered, row in zip(answered, rows, strict=True)]
        n, successes = len(right), sum(right)
        metric: dict[str, Any] = {
            "value": None,
            "n": n,
            "n_scored": sum(answered),
            "n_errors": n - sum(answered),
            "standard_error": None,
            "interval": None,
        }
        if n:
            if method == "wilson":
                low, high = wilson_interval(successes, n)
                error: float | None = standard_error(successes, n)
            else:
                error, metric["clusters"] = clustered_error(right, clusters)
                low, high = clustered_wilson(error, successes, n, metric["clusters"])
            metric |= {"value": successes / n, "standard_error": error, "interval": _interval(low, high, method)}
        found[name] = metric
    return found


def _interval(low: float, high: float, method: str) -> dict[str, Any]:
    return {"low": low, "high": high, "level": 0.95, "method": method}


def iter_answers(row: Row) -> Iterator[dict[str, Any]]:
    """Yield each answer of a prediction row as a row of its own, the first one first."""
    yield {key: value for key, value in row.items() if key not in (MORE_SAMPLES, "majority_answer", "majority_correct")}
    of_item = {key: row[key] for key in ("id", "expected", "also_expected") if key in row}
    for sample in row.get(MORE_SAMPLES, ()):
        yield {**of_item, "error": None, **sample}


def pass_at_k(samples: int, right: int, k: int) -> float:
    """Compute the unbiased estimate of pass@k, `1 − C(n − c, k) / C(n, k)`.

    n samples, c of them right, k tries (M. Chen et al., arXiv 2107.03374, 2021). For 4 samples of which 2 are right and
    k = 2: `1 − 1 / 6 = 0.833`; `1 − (1 − 2 / 4)²` would be 0.75, which is biased.
    """
    return 1 - math.comb(samples - right, k) / math.comb(samples, k)


def majority_answer(answers: Sequence[str | None], scoring: Scoring) -> str | None:
    """Return the most frequent answer, the earliest on a tie, or None if no sample has an answer.

    Two answers are equal if one is right where the other is expected. Of 7, 8, 8.0 compared as numbers it is 8.
    """
    counts: dict[str, int] = {}
    for answer in answers:
        if answer is not None:
            same = next((other for other in counts if scoring.is_right(answer, (other,))), answer)
            counts[same] = counts.get(same, 0) + 1
    return max(counts, key=counts.__getitem__, default=None)


def majority_fields(answers: Sequence[str | None], scoring: Scoring, accepted: Sequence[str]) -> dict[str, Any]:
    """Return the fields of a prediction row about the majority of its answers."""
    majority = majority_answer(answers, scoring)
    return {"majority_answer": majority, "majority_correct": scoring.is_right(majority, accepted)}


def _sampled_scores(rows: Sequence[Row], samples: int, clusters: Sequence[int], method: str) -> dict[str, Any]:
    """Compute pass@k for k = 1, 2, 4, … and all samples, and the score of the majority answer.

    The samples of an item are one cluster. An item without an output counts as wrong.
    """
    method = BY_PROMPT if method == BY_PROMPT else "clustered_wilson"
    right = [0 if row["error"] is not None else sum(each["correct"] for each in iter_answers(row)) for row in rows]
    majority = [float(row["error"] is None and bool(row.get("majority_correct"))) for row in rows]
    tries = [*(2**power for power in range((samples - 1).bit_length())), samples]
    return {
        "samples": samples,
        "pass_at": [
            {
                "tries": k,
                **share_with_interval(
                    [pass_at_k(samples, min(c, samples), k) for c in right], clusters, samples // k, method
                ),
            }
            for k in tries
        ],
        "majority": share_with_interval(majority, clusters, 1, method),
    }


def share_with_interval(
    values: Sequence[float], clusters: Sequence[Hashable], tries_each: int, method: str = "clustered_wilson"
) -> dict[str, Any]:
    """Compute the mean of a share of each item, with standard error and Wilson interval.

    The effective number of items of the interval is at most `tries_each` for each item.
    """
    if not values:
        return {"value": None, "standard_error": None, "interval": None}
    value, n = math.fsum(values) / len(values), len(values) * tries_each
    error, groups = clustered_error(values, clusters)
    low, high = clustered_wilson(error, value * n, n, groups)
    return {"value": value, "standard_error": error, "interval": _interval(low, high, method)}


def draw_ids(ids: Sequence[str], count: int, seed: int) -> list[str]:
    """Draw up to `count` ids reproducibly: those with the smallest SHA-256 of seed and id, in their original order."""
    chosen = set(sorted(ids, key=lambda each: hashlib.sha256(f"{seed} {each}".encode()).digest())[:count])
    return [each for each in ids if each in chosen]


@dataclass(frozen=True, kw_only=True)
class RightAnswers:
    """Number of right answers of a model, strictly and leniently (whatever their form), among n items."""

    strict: int
    lenient: int
    n: int


def count_right(metrics: Row | None) -> RightAnswers | None:
    """Return the right answers that evaluation metrics state, or None if they state no lenient ones."""
    strict, lenient = (metrics or {}).get("exact_match"), (metrics or {}).get("lenient_match")
    if not strict or not lenient or strict["value"] is None or lenient["value"] is None:
        return None
    n = strict["n"]
    return RightAnswers(strict=round(strict["value"] * n), lenient=round(lenient["value"] * n), n=n)


def describe_form_gain(before: RightAnswers | None, after: RightAnswers | None) -> str | None:
    """Describe a gain in exact match that is only a gain in form, in full or in part, or return None if it is not.

    In full if the lenient score does not rise; in part if fewer answers are right only leniently than before.

    >>> describe_form_gain(RightAnswers(strict=0, lenient=4, n=60), RightAnswers(strict=2, lenient=2, n=60))
    'the gain is form: strict 0 → 2 of 60, lenient 4 → 2'
    >>> describe_form_gain(RightAnswers(strict=0, lenient=30, n=60), RightAnswers(strict=40, lenient=42, n=60))
    'part of the gain is form: strict 0 → 40 of 60, lenient 30 → 42'
    >>> describe_form_gain(RightAnswers(strict=10, lenient=12, n=60), RightAnswers(strict=40, lenient=42, n=60))
    """
    if before is None or after is None or before.n != after.n or after.strict <= before.strict:
        return None
    figures = f"strict {before.strict} → {after.strict} of {after.n}, lenient {before.lenient} → {after.lenient}"
    if after.lenient <= before.lenient:
        return f"the gain is form: {figures}"
    if before.lenient - before.strict > after.lenient - after.strict:
        return f"part of the gain is form: {figures}"
    return None


def describe_run_gain(summary: Row | None) -> str | None:
    """Describe a run's gain over its untrained model if it is only a gain in form, else return None."""
    baseline = (summary or {}).get("baseline")
    if not summary or not baseline:
        return None
    return describe_form_gain(count_right(baseline.get("metrics")), count_right(summary.get("metrics")))


def describe_form_losses(summary: Row | None, log: Iterable[Row] | None) -> list[str]:
    """Describe right answers of a run that do not count because of their form, and how to count them.

    Returns the log's warnings about the form of rows and outputs (TP087, TP088), and a sentence if at least
    `FORM_GAP` of the answers are right only leniently.
    """
    found = [
        str(record["message"]).split(": ", 1)[-1]
        for record in log or ()
        if record["fields"].get("code") in ("TP087", "TP088")
    ]
    right = count_right((summary or {}).get("metrics"))
    if right is not None and right.lenient - right.strict >= max(right.strict, FORM_GAP * right.n, 1):
        reader = ((summary or {}).get("scoring") or {}).get("answer", "tags")
        found.append(
            f"{right.lenient} of {right.n} answers are right leniently, but only {right.strict} with evaluation.answer "
            f"{reader}. Set evaluation.answer to the form of the outputs, or train the model on that form."
        )
    return found
