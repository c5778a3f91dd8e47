"""Compute the results and scores of a run from its rows, for both the trainer and the checker."""

from __future__ import annotations

import hashlib
import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from evidence.scores import intervals
from evidence.scores.intervals import BY_PROMPT, clustered_error
from evidence.scores.reading import Scoring
from schemas.reading import Array, column

Row = Mapping[str, Any]

GROUPINGS = ("section", "category", "difficulty")  # fields of an evaluation item by which scores are grouped
MORE_SAMPLES = "more_samples"  # field of a prediction row with the answers after the first
_METRICS = {"exact_match": "correct", "format_compliance": "format_ok", "lenient_match": "lenient_correct"}
"""Metrics of an evaluation and the prediction field that each counts."""
FORM_GAP = 0.2  # smallest fraction of answers right only leniently that `describe_format_losses` reports


def compute_result(metric_rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Compute the fields of the manifest's `result` that follow from the rows of metrics.jsonl, all None without rows.

    A loss of null (not finite) counts for neither mean nor best.
    """
    losses = column(metric_rows, "loss")
    measured = losses[np.isfinite(losses)].tolist()
    first, last = (metric_rows[0], metric_rows[-1]) if metric_rows else ({}, {})
    best = metric_rows[int(np.nanargmin(losses))] if measured else {}
    return {
        "first_loss": first.get("loss"),
        "last_loss": last.get("loss"),
        "mean_loss": math.fsum(measured) / len(measured) if measured else None,
        "best_loss": best.get("loss"),
        "best_step": best.get("step"),
        "tokens_seen": last.get("tokens_seen"),
    }


def learning_rates(optimizer: dict[str, Any], at: Array, steps: int) -> Array:
    """Compute the learning rate of each optimizer step from the configured schedule.

    Warm-up: step s (from 1) of w uses `peak · s / w`. After it, with p from 0 at the first step after the warm-up to 1
    at the last step, and f the final fraction: constant `peak`, linear `peak · (f + (1 − f) (1 − p))`, cosine
    `peak · (f + (1 − f) (1 + cos πp) / 2)`. `optimizer` is the group of config.yaml, `at` are `[rows]` steps from 1.
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

    With several samples per item, `metrics` counts the first one and `sampled` all samples. An item without an output
    counts as wrong. If items share a group or a prompt, standard errors and intervals are clustered; `by_prompt=False`
    ignores equal prompts, as earlier versions did.
    """
    clusters, method = intervals.find_clusters(rows, by_prompt=by_prompt)
    members: dict[str, dict[str, list[int]]] = {grouping: defaultdict(list) for grouping in GROUPINGS}
    for number, row in enumerate(rows):
        for grouping, named in members.items():
            if (name := row.get(grouping)) is not None:
                named[name].append(number)

    def metrics(numbers: Sequence[int]) -> dict[str, Any]:
        return _metrics([rows[number] for number in numbers], [clusters[number] for number in numbers], method)

    scores: dict[str, Any] = {
        "metrics": metrics(range(len(rows))),
        "groups": {key: {name: metrics(named[name]) for name in sorted(named)} for key, named in members.items()},
    }
    return scores | ({"sampled": _sampled_scores(rows, samples, clusters, method)} if samples > 1 else {})


def is_right(row: Row) -> bool:
    """Return whether a prediction counts as correct. An item without an output does not."""
    return bool(row["correct"]) and row["error"] is None


def _metrics(rows: Sequence[Row], clusters: Sequence[Hashable], method: str) -> dict[str, Any]:
    """Compute each metric of some rows, without `lenient_match` if no row has it, as in earlier versions."""
    n, n_errors = len(rows), sum(row["error"] is not None for row in rows)
    found: dict[str, Any] = {}
    for name, field in _METRICS.items():
        if field == "lenient_correct" and not any(field in row for row in rows):
            continue
        right = [row["error"] is None and bool(row.get(field)) for row in rows]
        metric: dict[str, Any] = {"value": None, "n": n, "n_scored": n - n_errors, "n_errors": n_errors}
        metric |= {"standard_error": None, "interval": None}
        if n:
            share = sum(right) / n
            error: float | None = math.sqrt(share * (1 - share) / n)
            low, high = intervals.wilson_interval(sum(right), n)
            if method != "wilson":
                error, metric["clusters"] = clustered_error(right, clusters)
                low, high = intervals.clustered_wilson(error, sum(right), n, metric["clusters"])
            metric |= {"value": share, "standard_error": error, "interval": _interval(low, high, method)}
        found[name] = metric
    return found


def _interval(low: float, high: float, method: str) -> dict[str, Any]:
    return {"low": low, "high": high, "level": 0.95, "method": method}


def iter_answers(row: Row) -> Iterator[dict[str, Any]]:
    """Yield each sample of a prediction row as its own row."""
    yield {key: value for key, value in row.items() if key not in (MORE_SAMPLES, "majority_answer", "majority_correct")}
    item = {key: row[key] for key in ("id", "expected", "also_expected") if key in row}
    for sample in row.get(MORE_SAMPLES, ()):
        yield {**item, "error": None, **sample}


def pass_at_k(samples: int, right: int, k: int) -> float:
    """Compute the unbiased estimate of pass@k, `1 − C(n − c, k) / C(n, k)`, from n samples with c right answers.

    From M. Chen et al., arXiv 2107.03374, 2021. For 2 right answers in 4 samples and k = 2: `1 − 1 / 6 = 0.833`.
    """
    return 1 - math.comb(samples - right, k) / math.comb(samples, k)


def majority_fields(answers: Sequence[str | None], scoring: Scoring, accepted: Sequence[str]) -> dict[str, Any]:
    """Return `majority_answer` (the earliest on a tie, None without any) and `majority_correct` of a prediction row.

    Answers are compared as in scoring: the majority of 7, 8, 8.0 is 8 if answers are numbers.
    """
    counts: dict[str, int] = {}
    for answer in answers:
        if answer is not None:
            same = next((other for other in counts if scoring.is_right(answer, (other,))), answer)
            counts[same] = counts.get(same, 0) + 1
    majority = max(counts, key=counts.__getitem__, default=None)
    return {"majority_answer": majority, "majority_correct": scoring.is_right(majority, accepted)}


def _sampled_scores(rows: Sequence[Row], samples: int, clusters: Sequence[int], method: str) -> dict[str, Any]:
    """Compute pass@k for k = 1, 2, 4, … and all samples, and the score of the majority answer."""
    method = BY_PROMPT if method == BY_PROMPT else "clustered_wilson"
    right = [0 if row["error"] is not None else sum(each["correct"] for each in iter_answers(row)) for row in rows]
    majority = [float(row["error"] is None and bool(row.get("majority_correct"))) for row in rows]
    pass_at = []
    for k in [*(2**power for power in range((samples - 1).bit_length())), samples]:
        values = [pass_at_k(samples, min(count, samples), k) for count in right]
        pass_at.append({"tries": k, **share_with_interval(values, clusters, samples // k, method)})
    return {"samples": samples, "pass_at": pass_at, "majority": share_with_interval(majority, clusters, 1, method)}


def share_with_interval(
    values: Sequence[float], clusters: Sequence[Hashable], tries_each: int, method: str = "clustered_wilson"
) -> dict[str, Any]:
    """Compute the mean of one fraction per item, each worth `tries_each` items at most, with its Wilson interval."""
    if not values:
        return {"value": None, "standard_error": None, "interval": None}
    value, n = math.fsum(values) / len(values), len(values) * tries_each
    error, groups = clustered_error(values, clusters)
    low, high = intervals.clustered_wilson(error, value * n, n, groups)
    return {"value": value, "standard_error": error, "interval": _interval(low, high, method)}


def draw_ids(ids: Sequence[str], count: int, seed: int) -> list[str]:
    """Draw up to `count` ids reproducibly: the smallest by SHA-256 of seed and id, in their original order."""
    chosen = set(sorted(ids, key=lambda each: hashlib.sha256(f"{seed} {each}".encode()).digest())[:count])
    return [each for each in ids if each in chosen]


def _count_right(metrics: Row | None) -> tuple[int, int, int] | None:
    """Return the number of strictly right, leniently right and all answers, or None without a lenient score."""
    strict, lenient = (metrics or {}).get("exact_match"), (metrics or {}).get("lenient_match")
    if not strict or not lenient or strict["value"] is None or lenient["value"] is None:
        return None
    n = strict["n"]
    return round(strict["value"] * n), round(lenient["value"] * n), n


def describe_format_gain(metrics_before: Row | None, metrics_after: Row | None) -> str | None:
    """Describe a gain in exact match that is larger than the gain in lenient match, or return None.

    For example: "part of the gain is in the answer format: strict 0 → 40 of 60, lenient 30 → 42".
    """
    before, after = _count_right(metrics_before), _count_right(metrics_after)
    if before is None or after is None:
        return None
    (strict, lenient, n), (new_strict, new_lenient, new_n) = before, after
    is_entire = new_lenient <= lenient
    if n != new_n or new_strict <= strict or not (is_entire or lenient - strict > new_lenient - new_strict):
        return None
    head = "the gain is only" if is_entire else "part of the gain is"
    counts = f"strict {strict} → {new_strict} of {n}, lenient {lenient} → {new_lenient}"
    return f"{head} in the answer format: {counts}"


def describe_run_gain(summary: Row | None) -> str | None:
    """Describe a run's gain over its untrained model if it is at least partly in the answer format, or return None."""
    baseline = (summary or {}).get("baseline")
    return describe_format_gain(baseline.get("metrics"), summary.get("metrics")) if summary and baseline else None


def describe_format_losses(summary: Row | None, log: Iterable[Row] | None) -> list[str]:
    """Describe right answers that do not count because of their form, with the log's warnings (TP087, TP088)."""
    warnings = (record for record in log or () if record["fields"].get("code") in ("TP087", "TP088"))
    found = [str(record["message"]).split(": ", 1)[-1] for record in warnings]
    strict, lenient, n = _count_right((summary or {}).get("metrics")) or (0, 0, 0)
    if lenient - strict >= max(strict, FORM_GAP * n, 1):
        reader = ((summary or {}).get("scoring") or {}).get("answer", "tags")
        found.append(
            f"{lenient} of {n} answers are right leniently, but only {strict} with evaluation.answer {reader}. "
            "Set evaluation.answer to the form of the outputs, or train the model on that form."
        )
    return found
