"""Comparing runs: which settings differ, what each reached, and whether a difference in score is more than chance.

What lives here: the comparison as data. What does not: its text (`evidence.present_compare`), the difference
in score of two runs (`evidence.score_difference`), and whether two runs may be compared by score
(`evidence.comparable`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from evidence.comparable import refusals
from evidence.facts import Facts, facts_of
from evidence.grade import Grade
from evidence.headlines import Headline, headlines
from evidence.judge import report_of
from evidence.named import flatten
from evidence.read import Run
from evidence.report import RunReport
from evidence.score_difference import Flip, ScoreDifference, is_right, score_difference
from evidence.smoke import SmokeCheck, smoke_check
from evidence.statistics import holm
from evidence.traced import traced

__all__ = ["Comparison", "Flip", "Pair", "ScoreDifference", "Setting", "compare_runs", "is_right"]

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
    grades: tuple[Grade, ...]
    """What each of them is worth."""
    statuses: tuple[str | None, ...]
    """How each of them ended, or that it runs; None where a run does not say."""
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


def compare_runs(runs: Sequence[Run], reports: Sequence[RunReport] | None = None) -> Comparison:
    """Return how runs differ, the first of them against each of the others.

    A figure or a score that an error concerns counts as not measured (`evidence.traced`).

    Args:
        runs: Two or more runs, as read; what is not valid in them counts as not stated.
        reports: Grade and findings of each. None: they are judged now, each by itself.

    Raises:
        ValueError: Fewer than two runs were given.
    """
    if len(runs) < 2:
        message = f"compare_runs needs at least 2 runs; got {len(runs)}"
        raise ValueError(message)
    names = _names(runs)
    reports = reports or [report_of(run) for run in runs]
    facts = [traced(facts_of(run), report.findings) for run, report in zip(runs, reports, strict=True)]
    grades = [report.grade for report in reports]
    settings = list(_settings(facts))
    pairs = [_pair(names[0], facts[0], name, other) for name, other in zip(names[1:], facts[1:], strict=True)]
    return Comparison(
        names=names,
        grades=tuple(grades),
        statuses=tuple(run.status for run in runs),
        differing=tuple(setting for setting in settings if not _all_equal(setting.values)),
        equal=tuple(setting for setting in settings if _all_equal(setting.values)),
        headlines=tuple(headlines(fact) for fact in facts),
        pairs=tuple(_with_holm(pairs)),
        smoke=smoke_check(names, facts, grades),
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


def _all_equal(values: Sequence[Any]) -> bool:
    """Return whether all values are equal and of one type: true is not 1, but 1 is 1.0."""
    first = values[0]
    return all(value == first and isinstance(value, bool) == isinstance(first, bool) for value in values)


def _pair(first: str, a: Facts, second: str, b: Facts) -> Pair:
    reasons = refusals(first, a, second, b)
    score = None if reasons else score_difference(a.predictions or [], b.predictions or [])
    return Pair(first=first, second=second, score=score, refused=reasons)


def _with_holm(pairs: Sequence[Pair]) -> Iterator[Pair]:
    """Yield the pairs with p-values adjusted for their number."""
    adjusted = iter(holm([pair.score.p_value for pair in pairs if pair.score]))
    for pair in pairs:
        yield replace(pair, score=replace(pair.score, adjusted_p_value=next(adjusted))) if pair.score else pair
