"""Comparing runs: which settings differ, what each reached, and whether a difference in score is more than chance."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from evidence.compare.comparable import refusals
from evidence.compare.score_difference import Flip, ScoreDifference, is_right, score_difference
from evidence.compare.settings import Setting, Told, all_equal, side_by_side, told
from evidence.compare.smoke import SmokeCheck, smoke_check
from evidence.judge.grade import Grade
from evidence.judge.headlines import Headline, headlines
from evidence.judge.judgement import report_of
from evidence.judge.record import Record, record_of
from evidence.judge.report import RunReport
from evidence.records.facts import facts_of
from evidence.records.ours import Run
from evidence.scores.proportions import holm

__all__ = ["Comparison", "Flip", "Pair", "ScoreDifference", "compare_runs", "is_right"]


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
    """Settings whose values are not all equal, of either document."""
    equal: tuple[Setting, ...]
    """Settings that all runs share, of either document."""
    headlines: tuple[tuple[Headline, ...], ...]
    """The same figures in the same order for each run."""
    withheld: tuple[tuple[str, ...], ...]
    """Which figures of each run are not shown and why, as sentences; empty where none is kept back."""
    pairs: tuple[Pair, ...]
    """The first run against each of the others."""
    smoke: SmokeCheck | None
    """What a smoke run says of a full one. None: this is not one of each."""

    def told(self) -> Told:
        """Return the settings as a reader wants them."""
        return told([*self.differing, *self.equal])


def compare_runs(runs: Sequence[Run], reports: Sequence[RunReport] | None = None) -> Comparison:
    """Return how runs differ, the first of them against each of the others.

    A figure or a score that an error concerns counts as not measured (`evidence.judge.record`).

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
    records = [record_of(facts_of(run), report.findings) for run, report in zip(runs, reports, strict=True)]
    facts = [record.facts for record in records]
    grades = [report.grade for report in reports]
    settings = side_by_side(facts)
    pairs = [_pair(names[0], records[0], name, other) for name, other in zip(names[1:], records[1:], strict=True)]
    return Comparison(
        names=names,
        grades=tuple(grades),
        statuses=tuple(record.figures.status for record in records),
        differing=tuple(setting for setting in settings if not all_equal(setting.values)),
        equal=tuple(setting for setting in settings if all_equal(setting.values)),
        headlines=tuple(headlines(record) for record in records),
        withheld=tuple(record.withheld for record in records),
        pairs=tuple(_with_holm(pairs)),
        smoke=smoke_check(names, facts, grades),
    )


def _names(runs: Sequence[Run]) -> tuple[str, ...]:
    """Return the folder names, or the whole paths where two folders have one name."""
    names = tuple(run.path.resolve().name for run in runs)
    return names if len(set(names)) == len(names) else tuple(str(run.path) for run in runs)


def _pair(first: str, a: Record, second: str, b: Record) -> Pair:
    reasons = refusals(first, a, second, b)
    score = None if reasons else score_difference(a.facts.predictions or [], b.facts.predictions or [])
    return Pair(first=first, second=second, score=score, refused=reasons)


def _with_holm(pairs: Sequence[Pair]) -> Iterator[Pair]:
    """Yield the pairs with p-values adjusted for their number."""
    adjusted = iter(holm([pair.score.p_value for pair in pairs if pair.score]))
    for pair in pairs:
        yield replace(pair, score=replace(pair.score, adjusted_p_value=next(adjusted))) if pair.score else pair
