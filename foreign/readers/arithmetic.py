"""Figures of one group that follow from others of it: a score from its counts, steps from a speed, an error from n."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from foreign.readers.keys import SHARES_OF_RIGHT_ANSWERS, plain
from foreign.readers.scores import metric_and_scope
from foreign.readers.statement import Citation, Scope, Statement, infer
from foreign.readers.text import agree

_RIGHT = ("correct", "num_correct", "n_correct", "correct_count", "total_correct", "correct_answers", "right")
_ALL = (
    *("total", "n", "count", "num_total", "n_total", "num_samples", "n_samples", "num_examples", "n_examples"),
    *("num_questions", "total_questions", "num_items", "n_items", "total_items", "total_count", "num_problems"),
    *("n_scored", "num_scored", "scored"),
)
_CATEGORIES = re.compile(
    r"(?:^|_)(?:by|per|categor(?:y|ies)|subjects?|subsets?|breakdown|difficult(?:y|ies)|levels?|tasks?|types?)(?:_|$)"
)
"""Names of groups whose members are parts of all items."""

MOST_ITEMS = 10**12
"""Items beyond which a number is not a count of them."""

_FEWEST_PARTS = 2

_PART_ROUNDED = 0.006
"""How far a share may lie from the mean of its parts where each was rounded to two decimals."""

_SPEED_ROUNDED = 0.0005
"""Half of the last digit of a speed that the Hugging Face Trainer rounds to three."""

BINARY = ("acc", "acc_norm", "exact_match", "em")
"""Metrics of lm-eval whose every sample is 0 or 1, so that their standard error follows from value and number."""


def from_counts(numbers: Mapping[str, float], groups: str, source: Citation) -> Iterator[Statement]:
    """Yield the share of right answers that two counts of a group give, as an accuracy.

    Args:
        numbers: The figures of the group by plain name.
        groups: Names of the groups above, with a dot behind them; empty: none.
        source: Where the group stands.
    """
    right = next((numbers[name] for name in _RIGHT if name in numbers), None)
    total = next((numbers[name] for name in _ALL if name in numbers), None)
    if right is None or total is None or total < 1 or not 0 <= right <= total or right != int(right):
        return
    if right <= 1 and total > 1:
        return  # A share under the name of a count.
    share = right / total
    others = [right / count for count in numbers.values() if count == int(count) and 1 <= right <= count]
    for name in ("accuracy", "acc", "overall_accuracy", "eval_accuracy", "final_accuracy", "score"):
        # A share of those that were attempted, say, is one of other counts of the group.
        is_of_others = any(agree(numbers.get(name, 0.0), other, decimals_stated=2) for other in others)
        if name in numbers and not (is_of_others and not agree(numbers[name], share, decimals_stated=2)):
            metric, scope = metric_and_scope(f"{groups}{name}", source.file)
            yield infer(
                f"score.{metric}",
                share,
                source,
                f"{right:g} of {total:g} right ({source}) are {share:.4g}",
                scope=scope,
                low=share - 1e-9,
                high=share + 1e-9,
            )


def from_speeds(numbers: Mapping[str, float], source: Citation) -> Iterator[Statement]:
    """Yield steps and items that speed and time of the Hugging Face Trainer give."""
    known = (
        ("train_steps_per_second", "train_runtime", "training.steps_planned"),
        ("eval_samples_per_second", "eval_runtime", "evaluation.items"),
    )
    for speed, time, fact in known:
        rate, seconds = numbers.get(speed), numbers.get(time)
        if rate is None or seconds is None or rate <= 0 or seconds <= 0 or rate * seconds > MOST_ITEMS:
            continue
        slack = _SPEED_ROUNDED * (10 if f"{rate:.3f}".endswith("0") else 1)  # Some versions round to two.
        low, high = (rate - slack) * seconds, (rate + slack) * seconds
        yield infer(
            fact,
            round(rate * seconds),
            source,
            f"{rate:g} a second over {seconds:g} seconds ({source}) are {rate * seconds:.0f}",
            scope=metric_and_scope("eval_accuracy", source.file)[1] if fact == "evaluation.items" else Scope(),
            low=low - 1.0,
            high=high + 1.0,
        )


def from_loss(numbers: Mapping[str, float], groups: str, source: Citation) -> Iterator[Statement]:
    """Yield the perplexity that the loss of an evaluation gives: its exponential."""
    loss = numbers.get("eval_loss")
    name = next((name for name in ("perplexity", "eval_perplexity") if name in numbers), None)
    if (
        loss is None
        or name is None
        or not 0 < loss < 50
        or numbers[name] <= 0
        or abs(2.0**loss / numbers[name] - 1) < 0.01
    ):
        return
    metric, scope = metric_and_scope(f"{groups}{name}", source.file)
    perplexity = math.exp(loss)
    yield infer(
        f"score.{metric}",
        perplexity,
        source,
        f"the exponential of the loss {loss:g} beside it ({source}) is {perplexity:.4g}",
        scope=scope,
        low=0.98 * perplexity,
        high=1.02 * perplexity,
    )


def from_precision(numbers: Mapping[str, float], groups: str, source: Citation) -> Iterator[Statement]:
    """Yield how large an F1 is at most: the middle of precision and recall, of one class and of the mean of several.

    Source: the harmonic mean is not above the arithmetic one.
    """
    for prefix in ("", "eval_", "test_", "val_", "predict_"):
        precision, recall = numbers.get(f"{prefix}precision"), numbers.get(f"{prefix}recall")
        name = next((name for name in (f"{prefix}f1", f"{prefix}f1_score") if name in numbers), None)
        if precision is None or recall is None or name is None:
            continue
        metric, scope = metric_and_scope(f"{groups}{name}", source.file)
        most = (precision + recall) / 2
        yield infer(
            f"score.{metric}",
            most,
            source,
            f"precision {precision:g} and recall {recall:g} beside it ({source}) allow {most:.4g} at most",
            scope=scope,
            low=0.0,
            high=most + 0.01 * max(1.0, most),
        )


def from_parts(
    value: Mapping[str, Any], numbers: Mapping[str, float], groups: str, source: Citation
) -> Iterator[Statement]:
    """Yield between what a share of right answers lies, as those of its categories give it; with counts, which it is.

    Args:
        value: The group: shares of all items, and a group of categories.
        numbers: The figures of the group by plain name.
        groups: Names of the groups above, with a dot behind them; empty: none.
        source: Where the group stands.
    """
    for key, parts in value.items():
        if not isinstance(parts, dict) or len(parts) < _FEWEST_PARTS or not _CATEGORIES.search(plain(key)):
            continue
        for name in numbers.keys() & SHARES_OF_RIGHT_ANSWERS.keys():
            shares = [part.get(name) if isinstance(part, dict) else part for part in parts.values()]
            given = [one for one in shares if isinstance(one, int | float) and 0 <= one <= 100]
            if len(given) < len(shares):
                continue
            low, high = _mean_of(parts, given, next((numbers[one] for one in _ALL if one in numbers), None))
            metric, scope = metric_and_scope(f"{groups}{name}", source.file)
            yield infer(
                f"score.{metric}",
                high,
                source,
                f"its {len(given)} parts under {key} ({source}) give {_between(low, high)}",
                scope=scope,
                low=low,
                high=high,
            )


def _mean_of(parts: Mapping[str, Any], shares: Sequence[float], total: float | None) -> tuple[float, float]:
    """Return between what the share of all lies: their mean where each part has a count, and these are all items."""
    counts = [
        next((part[name] for name in _ALL if _is_count(part.get(name))), None) if isinstance(part, dict) else None
        for part in parts.values()
    ]
    known = [count for count in counts if count is not None]
    if total is not None and sum(known) not in (0, total):
        return -math.inf, math.inf  # Parts that overlap, or not all of them.
    if len(known) < len(counts) or sum(known) <= 0:
        return min(shares) - _PART_ROUNDED, max(shares) + _PART_ROUNDED
    mean = sum(count * share for count, share in zip(known, shares, strict=True)) / sum(known)
    return mean - _PART_ROUNDED, mean + _PART_ROUNDED


def _is_count(value: object) -> bool:
    return isinstance(value, int) and 0 <= value <= MOST_ITEMS


def _between(low: float, high: float) -> str:
    least, most = low + _PART_ROUNDED, high - _PART_ROUNDED
    return f"{most:.4g}" if most - least < 1e-9 else f"between {least:.4g} and {most:.4g}"


def standard_error(
    name: str, value: float, stated: float, items: float, source: Citation, scope: Scope
) -> Iterator[Statement]:
    """Yield a stated standard error of a share, and the one that the share and the number of its items give.

    Source: the standard deviation of a sample of zeros and ones over the root of its size, as lm-eval computes it.
    """
    if not 0 <= value <= 1 or items < 2:
        return
    given = math.sqrt(value * (1 - value) / (items - 1))
    yield Statement(fact=f"stderr.{name}", value=stated, source=source, kind="measured", scope=scope)
    yield infer(
        f"stderr.{name}",
        given,
        source,
        f"{value:g} of {items:g} items has the standard error {given:.4g}",
        scope=scope,
        low=0.97 * given - 1e-4,
        high=1.03 * given + 1e-4,
    )
