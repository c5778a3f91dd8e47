"""The difference in score of two runs that answered the same items, item by item."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from evidence.run import Document
from evidence.scores.clusters import (
    clustered_detectable,
    clustered_difference,
    clustered_mean,
    clusters_of,
)
from evidence.scores.gain import Right, gain_of_form, right_of
from evidence.scores.means import MeanInterval, mean_interval
from evidence.scores.proportions import (
    PairedTable,
    mcnemar_exact,
    minimum_detectable_difference,
    paired_difference_interval,
)
from evidence.scores.recompute import scores_of

Test = Literal["exact McNemar", "clustered t"]


@dataclass(frozen=True, kw_only=True)
class Flip:
    """One item that the two runs answered differently well."""

    id: str
    """Id of the item."""
    prompt: str
    """The question."""
    expected: str
    """The right answer."""
    first_answer: str | None
    """Answer extracted from the first run's output. None: it gave none."""
    second_answer: str | None
    """Answer extracted from the second run's output."""
    kind: Literal["fixed", "broken"]
    """fixed: only the second run is right. broken: only the first is."""


@dataclass(frozen=True, kw_only=True)
class ScoreDifference:
    """Exact match of two runs on the same items."""

    table: PairedTable
    """How the items fell."""
    difference: float
    """Score of the second run minus score of the first, as a fraction."""
    low: float
    """Lower end of its 95 % interval: Tango's, or Student's of the groups."""
    high: float
    """Upper end of its 95 % interval."""
    test: Test
    """Where the p-value comes from. clustered t: items share groups or prompts; McNemar's test would find too much."""
    p_value: float
    """Two-sided p-value of no difference."""
    adjusted_p_value: float
    """The same after Holm's correction for all pairs of this comparison; equal to it where there is one pair."""
    detectable_difference: float | None
    """Smallest true difference found with probability 0.8 by so many items. None: no difference would be."""
    clusters: int | None
    """Independent groups that the items form. None: no item shares a group or a prompt with another."""
    first_errors: int
    """Items to which the first run has no output; they count as wrong."""
    second_errors: int
    """Items to which the second run has no output."""
    output_tokens: MeanInterval | None
    """Mean difference in tokens of the outputs, second minus first. None: no item has an output of both."""
    gain_of_form: str | None
    """In words, that what the second run gains over the first is form, wholly or in part. None: not, or not known."""
    flips: tuple[Flip, ...]
    """Items that exactly one of the two answered rightly, broken before fixed, by id."""


def score_difference(first: Sequence[Document], second: Sequence[Document]) -> ScoreDifference:
    """Return the difference of two runs, given as prediction rows whose items have been found to be the same."""
    by_id = {row["id"]: row for row in second}
    pairs = [(row, by_id[row["id"]]) for row in first]
    outcomes = [(is_right(a), is_right(b)) for a, b in pairs]
    table = PairedTable(
        both=outcomes.count((True, True)),
        only_first=outcomes.count((True, False)),
        only_second=outcomes.count((False, True)),
        neither=outcomes.count((False, False)),
    )
    candidates = [(rows, *clusters_of(rows)) for rows in (first, list(by_id.values()))]
    grouped = next(((rows, found) for rows, found, method in candidates if method != "wilson"), None)
    cluster_by_id = {row["id"]: cluster for row, cluster in zip(*grouped, strict=True)} if grouped else {}
    if grouped:
        clusters = [cluster_by_id[row["id"]] for row in first]
        differences = [int(also) - int(right) for right, also in outcomes]
        low, high, p_value = clustered_difference(differences, clusters)
        detectable = clustered_detectable(differences, clusters)
    else:
        low, high = paired_difference_interval(table)
        p_value = mcnemar_exact(table.only_first, table.only_second)
        detectable = minimum_detectable_difference(table.items, table.only_first + table.only_second)
    flips = [_flip(a, b) for (a, b), (right, also) in zip(pairs, outcomes, strict=True) if right != also]
    return ScoreDifference(
        table=table,
        difference=table.difference,
        low=low,
        high=high,
        test="clustered t" if grouped else "exact McNemar",
        p_value=p_value,
        adjusted_p_value=p_value,
        detectable_difference=detectable,
        clusters=len(set(cluster_by_id.values())) if grouped else None,
        first_errors=sum(row["error"] is not None for row in first),
        second_errors=sum(row["error"] is not None for row in second),
        output_tokens=_output_tokens(pairs, cluster_by_id),
        gain_of_form=gain_of_form(_right(first), _right(second)),
        flips=tuple(sorted(flips, key=lambda flip: (flip.kind, flip.id))),
    )


def is_right(row: Document) -> bool:
    """Return whether a prediction counts as correct; an item without an output does not (`recompute.scores_of`)."""
    return bool(row["correct"]) and row["error"] is None


def _right(rows: Sequence[Document]) -> Right | None:
    return right_of(scores_of(rows)["metrics"])


def _output_tokens(pairs: Sequence[tuple[Document, Document]], clusters: Document) -> MeanInterval | None:
    """Return the mean difference in length over the items that both answered."""
    answered = [(a, b) for a, b in pairs if a["error"] is None and b["error"] is None]
    differences = [b["output_tokens"] - a["output_tokens"] for a, b in answered]
    if not differences:
        return None
    if clusters:
        return clustered_mean(differences, [clusters[a["id"]] for a, _ in answered])
    return mean_interval(differences)


def _flip(a: Document, b: Document) -> Flip:
    return Flip(
        id=a["id"],
        prompt=a["prompt"],
        expected=a["expected"],
        first_answer=a["extracted_answer"],
        second_answer=b["extracted_answer"],
        kind="broken" if is_right(a) else "fixed",
    )
