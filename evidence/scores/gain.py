"""Whether a gain in score is one of right answers, or of their form alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

FORM_ALONE = 0.2
"""Share of answers that are right leniently alone, from which on it is said."""


@dataclass(frozen=True, kw_only=True)
class Right:
    """Right answers of a model among the items of the set: strictly, and leniently, whatever their form."""

    strict: int
    lenient: int
    n: int


def right_of(metrics: Mapping[str, Any] | None) -> Right | None:
    """Return the right answers that the metrics of an eval_summary.json state, None if they state no lenient ones."""
    strict, lenient = (metrics or {}).get("exact_match"), (metrics or {}).get("lenient_match")
    if not strict or not lenient or strict["value"] is None or lenient["value"] is None:
        return None
    n = strict["n"]
    return Right(strict=round(strict["value"] * n), lenient=round(lenient["value"] * n), n=n)


def gain_of_form(before: Right | None, after: Right | None) -> str | None:
    """Return in words that a strict gain is one of form, wholly or in part.

    Or None if it is not, or if that is unknown.

    Wholly: leniently the second is not better than the first. In part: leniently the first was right more often than
    strictly, by more than the second is.

    >>> gain_of_form(Right(strict=0, lenient=4, n=60), Right(strict=2, lenient=2, n=60))
    'the gain is form: strict 0 → 2 of 60, lenient 4 → 2'
    >>> gain_of_form(Right(strict=0, lenient=30, n=60), Right(strict=40, lenient=42, n=60))
    'a part of the gain is form: strict 0 → 40 of 60, lenient 30 → 42'
    >>> gain_of_form(Right(strict=10, lenient=12, n=60), Right(strict=40, lenient=42, n=60))
    """
    if before is None or after is None or before.n != after.n or after.strict <= before.strict:
        return None
    figures = f"strict {before.strict} → {after.strict} of {after.n}, lenient {before.lenient} → {after.lenient}"
    if after.lenient <= before.lenient:
        return f"the gain is form: {figures}"
    if before.lenient - before.strict > after.lenient - after.strict:
        return f"a part of the gain is form: {figures}"
    return None


def form_of_run(summary: Mapping[str, Any] | None, log: Iterable[Mapping[str, Any]] | None) -> list[str]:
    """Return in sentences that right answers of a run are not counted for their form, and what to change.

    That is what the log warns of of rows and outputs, or that a fifth of the answers and more are right
    leniently alone, and fewer exactly.
    """
    said = [
        str(record["message"]).split(": ", 1)[-1]
        for record in log or ()
        if record["fields"].get("code") in ("TP087", "TP088")
    ]
    right = right_of((summary or {}).get("metrics"))
    if right is not None and right.lenient - right.strict >= max(right.strict, FORM_ALONE * right.n, 1):
        reader = ((summary or {}).get("scoring") or {}).get("answer", "tags")
        said.append(
            f"{right.lenient} of {right.n} answers are right leniently and only {right.strict} as evaluation.answer "
            f"{reader} reads them: set it to the form that the outputs have, or teach the form that it reads."
        )
    return said


def gain_of_run(summary: Mapping[str, Any] | None) -> str | None:
    """Return in words that a run's gain over its untrained model is one of form; None if not, or it is unknown."""
    baseline = (summary or {}).get("baseline")
    if not summary or not baseline:
        return None
    return gain_of_form(right_of(baseline.get("metrics")), right_of(summary.get("metrics")))
