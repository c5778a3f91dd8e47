"""Figures of one group that follow from others of it: a score from its counts, steps from a speed, an error from n."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from evidence.records.foreign.score_names import metric_and_scope
from evidence.records.foreign.view import Source
from evidence.records.statements import Scope, Statement

_RIGHT = ("correct", "num_correct", "n_correct", "correct_count", "total_correct", "correct_answers", "right")
_ALL = (
    *("total", "n", "count", "num_total", "n_total", "num_samples", "n_samples", "num_examples", "n_examples"),
    *("num_questions", "total_questions", "num_items", "n_items", "total_items", "total_count", "num_problems"),
    *("n_scored", "num_scored", "scored"),
)
_SPEED_ROUNDED = 0.0005
"""Half of the last digit of a speed that the Hugging Face Trainer rounds to three."""

BINARY = ("acc", "acc_norm", "exact_match", "em")
"""Metrics of lm-eval whose every sample is 0 or 1, so that their standard error follows from value and number."""


def from_counts(numbers: Mapping[str, float], groups: str, source: Source) -> Iterator[Statement]:
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
    for name in ("accuracy", "acc", "overall_accuracy", "eval_accuracy", "final_accuracy", "score"):
        if name in numbers:
            metric, scope = metric_and_scope(f"{groups}{name}", source.file)
            yield Statement(
                fact=f"score.{metric}",
                value=share,
                source=source,
                kind="measured",
                how="inferred",
                scope=scope,
                low=share - 1e-9,
                high=share + 1e-9,
                told=f"{right:g} of {total:g} right ({source}) are {share:.4g}",
            )


def from_speeds(numbers: Mapping[str, float], source: Source) -> Iterator[Statement]:
    """Yield steps and items that speed and time of the Hugging Face Trainer give."""
    known = (
        ("train_steps_per_second", "train_runtime", "training.steps_planned"),
        ("eval_samples_per_second", "eval_runtime", "evaluation.items"),
    )
    for speed, time, fact in known:
        rate, seconds = numbers.get(speed), numbers.get(time)
        if rate is None or seconds is None or rate <= 0 or seconds <= 0:
            continue
        slack = _SPEED_ROUNDED * (10 if f"{rate:.3f}".endswith("0") else 1)  # Some versions round to two.
        low, high = (rate - slack) * seconds, (rate + slack) * seconds
        yield Statement(
            fact=fact,
            value=round(rate * seconds),
            source=source,
            kind="measured",
            how="inferred",
            scope=metric_and_scope("eval_accuracy", source.file)[1] if fact == "evaluation.items" else Scope(),
            low=low - 1.0,
            high=high + 1.0,
            told=f"{rate:g} a second over {seconds:g} seconds ({source}) are {rate * seconds:.0f}",
        )


def from_loss(numbers: Mapping[str, float], groups: str, source: Source) -> Iterator[Statement]:
    """Yield the perplexity that the loss of an evaluation gives: its exponential."""
    loss = numbers.get("eval_loss")
    name = next((name for name in ("perplexity", "eval_perplexity") if name in numbers), None)
    if loss is None or name is None or not 0 < loss < 50 or abs(2.0**loss / numbers[name] - 1) < 0.01:
        return
    metric, scope = metric_and_scope(f"{groups}{name}", source.file)
    perplexity = math.exp(loss)
    yield Statement(
        fact=f"score.{metric}",
        value=perplexity,
        source=source,
        kind="measured",
        how="inferred",
        scope=scope,
        low=0.98 * perplexity,
        high=1.02 * perplexity,
        told=f"the exponential of the loss {loss:g} beside it ({source}) is {perplexity:.4g}",
    )


def standard_error(name: str, value: float, stated: float, items: float, source: Source) -> Iterator[Statement]:
    """Yield a stated standard error of a share, and the one that the share and the number of its items give.

    Source: the standard deviation of a sample of zeros and ones over the root of its size, as lm-eval computes it.
    """
    if not 0 <= value <= 1 or items < 2:
        return
    given = math.sqrt(value * (1 - value) / (items - 1))
    yield Statement(fact=f"stderr.{name}", value=stated, source=source, kind="measured")
    yield Statement(
        fact=f"stderr.{name}",
        value=given,
        source=source,
        kind="measured",
        how="inferred",
        low=0.97 * given - 1e-4,
        high=1.03 * given + 1e-4,
        told=f"{value:g} of {items:g} items has the standard error {given:.4g}",
    )
