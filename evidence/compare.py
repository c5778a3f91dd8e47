"""Comparing runs: which settings differ, what each reached, and whether a difference in score is more than chance.

What lives here: the comparison as data. What does not: its text (`evidence.present_compare`), the formulas
(`evidence.statistics`), and whether two runs may be compared by score (`evidence.comparable`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from evidence.comparable import refusals
from evidence.facts import Document, Facts, facts_of
from evidence.headlines import Headline, headlines
from evidence.read import Run
from evidence.smoke import SmokeCheck, smoke_check
from evidence.statistics import (
    PairedTable,
    holm,
    mcnemar_exact,
    minimum_detectable_difference,
    paired_difference_interval,
)

SETTINGS_OF_MANIFEST = ("mode", "code", "environment", "devices", "model", "dataset", "training")
"""Groups of the manifest that say how a run was made; the others say what came of it."""
NO_SETTINGS = frozenset({"training.steps_done", "devices.list", "schema_version", "name"})
"""Fields among them, and of the configuration, that are no settings."""
ABSENT = "(not stated)"
"""Value of a setting that a run does not state; no document holds this text as a setting."""


Source = Literal["declared", "effective"]
"""declared: from config.yaml. effective: read back by the program, from run_manifest.json."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One setting and its value in each run."""

    name: str
    """Dotted path inside its document."""
    source: Source
    """Where it is stated."""
    values: tuple[Any, ...]
    """Value in each run, in their order; `ABSENT` where a run does not state it."""


@dataclass(frozen=True, kw_only=True)
class Flip:
    """One item that the two runs answered differently well."""

    id: str
    """Id of the item."""
    prompt: str
    """What was asked."""
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
    """Lower end of its 95 % interval."""
    high: float
    """Upper end of its 95 % interval."""
    p_value: float
    """Exact two-sided p-value of McNemar's test."""
    adjusted_p_value: float
    """The same after Holm's correction for all pairs of this comparison; equal to it where there is one pair."""
    detectable_difference: float | None
    """Smallest true difference found with probability 0.8 by so many items. None: no difference would be."""
    flips: tuple[Flip, ...]
    """Items that exactly one of the two answered rightly, broken before fixed, by id."""


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two runs held against each other; exactly one of score and refused is given."""

    first: str
    """Name of the first run."""
    second: str
    """Name of the second run."""
    score: ScoreDifference | None
    """The difference in score. None: it is refused."""
    refused: tuple[str, ...]
    """Why the scores cannot be compared, as sentences; empty if they can."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Two or more runs side by side."""

    names: tuple[str, ...]
    """Names of the runs, in their order."""
    differing: tuple[Setting, ...]
    """Settings whose values are not all equal."""
    equal: tuple[Setting, ...]
    """Settings that all runs share."""
    headlines: tuple[tuple[Headline, ...], ...]
    """The same figures in the same order for each run."""
    pairs: tuple[Pair, ...]
    """The first run against each of the others."""
    smoke: SmokeCheck | None
    """What a smoke run says of a full one. None: this is not one of each."""


def compare_runs(runs: Sequence[Run]) -> Comparison:
    """Return how runs differ, the first of them against each of the others.

    Args:
        runs: Two or more runs, as read; what is not valid in them counts as not stated.

    Raises:
        ValueError: Fewer than two runs were given.
    """
    if len(runs) < 2:
        message = f"compare_runs needs at least 2 runs; got {len(runs)}"
        raise ValueError(message)
    names = _names(runs)
    facts = [facts_of(run) for run in runs]
    settings = list(_settings(facts))
    pairs = [_pair(names[0], facts[0], name, other) for name, other in zip(names[1:], facts[1:], strict=True)]
    return Comparison(
        names=names,
        differing=tuple(setting for setting in settings if not _all_equal(setting.values)),
        equal=tuple(setting for setting in settings if _all_equal(setting.values)),
        headlines=tuple(headlines(fact) for fact in facts),
        pairs=tuple(_with_holm(pairs)),
        smoke=smoke_check(names, facts),
    )


def _names(runs: Sequence[Run]) -> tuple[str, ...]:
    """Return the folder names, or the whole paths where two folders have one name."""
    names = tuple(run.path.resolve().name for run in runs)
    return names if len(set(names)) == len(names) else tuple(str(run.path) for run in runs)


def _settings(facts: Sequence[Facts]) -> Iterator[Setting]:
    """Yield every setting that any of the runs states: effective ones first, then declared ones."""
    effective = [flatten({group: (fact.manifest or {}).get(group) for group in SETTINGS_OF_MANIFEST}) for fact in facts]
    declared = [flatten(fact.config or {}) for fact in facts]
    yield from _side_by_side("effective", effective)
    yield from _side_by_side("declared", declared)


def _side_by_side(source: Source, stated: Sequence[dict[str, Any]]) -> Iterator[Setting]:
    """Yield each setting of one source with its value in each run."""
    for name in dict.fromkeys(name for values in stated for name in values):
        if name not in NO_SETTINGS:
            yield Setting(name=name, source=source, values=tuple(values.get(name, ABSENT) for values in stated))


def flatten(value: Document, prefix: str = "") -> dict[str, Any]:
    """Return nested settings by dotted path: `{"a": {"b": 3}}` becomes `{"a.b": 3}`. Lists stay whole."""
    flat: dict[str, Any] = {}
    for key, inner in value.items():
        if isinstance(inner, dict) and inner:
            flat |= flatten(inner, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = inner
    return flat


def _all_equal(values: Sequence[Any]) -> bool:
    """Return whether all values are equal and of one type: true is not 1, but 1 is 1.0."""
    first = values[0]
    return all(value == first and isinstance(value, bool) == isinstance(first, bool) for value in values)


def _pair(first: str, a: Facts, second: str, b: Facts) -> Pair:
    reasons = refusals(first, a, second, b)
    score = None if reasons else _score_difference(a.predictions or [], b.predictions or [])
    return Pair(first=first, second=second, score=score, refused=reasons)


def _score_difference(first: Sequence[Document], second: Sequence[Document]) -> ScoreDifference:
    """Return the difference of two runs whose items have been found to be the same."""
    by_id = {row["id"]: row for row in second}
    rows = [(row, by_id[row["id"]]) for row in first]
    outcomes = [(is_right(a), is_right(b)) for a, b in rows]
    table = PairedTable(
        both=outcomes.count((True, True)),
        only_first=outcomes.count((True, False)),
        only_second=outcomes.count((False, True)),
        neither=outcomes.count((False, False)),
    )
    low, high = paired_difference_interval(table)
    p_value = mcnemar_exact(table.only_first, table.only_second)
    flips = [_flip(a, b) for (a, b), (right, also) in zip(rows, outcomes, strict=True) if right != also]
    return ScoreDifference(
        table=table,
        difference=table.difference,
        low=low,
        high=high,
        p_value=p_value,
        adjusted_p_value=p_value,
        detectable_difference=minimum_detectable_difference(table.items, table.only_first + table.only_second),
        flips=tuple(sorted(flips, key=lambda flip: (flip.kind, flip.id))),
    )


def is_right(row: Document) -> bool:
    """Return whether a prediction counts as correct; an item without an output does not (`recompute.scores_of`)."""
    return bool(row["correct"]) and row["error"] is None


def _flip(a: Document, b: Document) -> Flip:
    return Flip(
        id=a["id"],
        prompt=a["prompt"],
        expected=a["expected"],
        first_answer=a["extracted_answer"],
        second_answer=b["extracted_answer"],
        kind="broken" if is_right(a) else "fixed",
    )


def _with_holm(pairs: Sequence[Pair]) -> Iterator[Pair]:
    """Yield the pairs with p-values adjusted for their number."""
    adjusted = iter(holm([pair.score.p_value for pair in pairs if pair.score]))
    for pair in pairs:
        yield replace(pair, score=replace(pair.score, adjusted_p_value=next(adjusted))) if pair.score else pair
