"""Comparing runs: which settings differ, what each reached, and whether a difference in score is more than chance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, replace

from evidence import layout
from evidence.compare.score_difference import Flip, ScoreDifference, is_right, score_difference
from evidence.compare.settings import ComparedSetting, SettingsDiff, all_equal, diff_settings, side_by_side
from evidence.compare.smoke import SmokeCheck, smoke_check
from evidence.grade import Grade, RunReport
from evidence.proof.verification import standing_of
from evidence.report import Headline, JudgedRecord, build_record, headlines
from evidence.run import Document, Run
from evidence.scores.proportions import holm
from evidence.scores.reading import accepted_of, scoring_of

NAMED = 3
"""How many items a reason names before it only counts them."""


def refusals(first: str, a: JudgedRecord, second: str, b: JudgedRecord) -> tuple[str, ...]:
    """Return why the scores of two runs cannot be compared, as sentences; empty if they can."""
    missing = [*_missing(first, a), *_missing(second, b)]
    if missing:
        return tuple(missing)
    asked = _item_reasons(first, a.facts.predictions or [], second, b.facts.predictions or [])
    return (*asked, *_generation_reasons(a.facts, b.facts), *_scoring_reasons(a.facts, b.facts))


def _missing(name: str, record: JudgedRecord) -> Iterator[str]:
    """Yield what a run lacks for any comparison of scores."""
    facts = record.facts
    if record.unscored:
        yield f"{name} is {record.unscored}."
    elif facts.manifest is None:
        yield f"{name}: no valid {layout.MANIFEST} says what answered; `trainproof check` names what is wrong with it."
    elif layout.PREDICTIONS not in facts.files:
        yield f"{name} was not evaluated: it has no {layout.PREDICTIONS}."
    elif facts.predictions is None:
        yield f"{name}: {layout.PREDICTIONS} has errors; `trainproof check` names them."
    elif not facts.predictions:
        yield f"{name}: {layout.PREDICTIONS} is empty."
    elif facts.eval_summary is None and layout.EVAL_SUMMARY in facts.files:
        yield f"{name}: what it states of its evaluation does not hold; `trainproof check` says why."
    elif facts.eval_summary is None:
        yield f"{name}: no valid {layout.EVAL_SUMMARY} says how its outputs were generated."
    elif repeated := _repeated_ids([row["id"] for row in facts.predictions]):
        yield f"{name}: {_count(repeated, 'item')} answered more than once ({_first_ids(repeated)})."


def _item_reasons(first: str, a: Sequence[Document], second: str, b: Sequence[Document]) -> Iterator[str]:
    """Yield in what the two sets of items differ."""
    ones, others = {row["id"]: row for row in a}, {row["id"]: row for row in b}
    for name, only in ((first, ones.keys() - others.keys()), (second, others.keys() - ones.keys())):
        if only:
            yield f"{_count(only, 'item')} asked of {name} only ({_first_ids(only)})."
    shared = sorted(ones.keys() & others.keys())
    for field, noun in (("prompt", "another prompt"), ("expected", "another expected answer")):
        if differing := [item for item in shared if ones[item][field] != others[item][field]]:
            yield f"{_count(differing, 'item', 'has', 'have')} {noun} ({_first_ids(differing)})."
    if differing := [item for item in shared if accepted_of(ones[item])[1:] != accepted_of(others[item])[1:]]:
        yield f"{_count(differing, 'item', 'has', 'have')} other further answers ({_first_ids(differing)})."
    # A run of an older version states no groups; those of the other are taken.
    stated = [item for item in shared if ones[item].get("group") and others[item].get("group")]
    if differing := [item for item in stated if ones[item]["group"] != others[item]["group"]]:
        yield f"{_count(differing, 'item', 'has', 'have')} another group ({_first_ids(differing)})."


def _generation_reasons(a: Run, b: Run) -> Iterator[str]:
    """Yield which settings of generation differ."""
    one: Document = a.eval_summary["generation"] if a.eval_summary else {}
    other: Document = b.eval_summary["generation"] if b.eval_summary else {}
    for field in {**one, **other}:
        # The hash follows from the other fields and would only repeat them; other seeds ask no other question.
        if field not in ("sha256", "seed") and one.get(field) != other.get(field):
            yield f"Outputs were generated with {field} {one.get(field)!r} and {other.get(field)!r}."


def _scoring_reasons(a: Run, b: Run) -> Iterator[str]:
    """Yield in what the ways differ in which answers were read."""
    one, other = asdict(scoring_of(a.eval_summary)), asdict(scoring_of(b.eval_summary))
    by_version = scoring_of(a.eval_summary).depends_on_version or "stop" in (a.eval_summary or {}).get("generation", ())
    for field, value in one.items():
        if value != other[field] and (field != "version" or by_version):
            yield f"Answers were read with {field} {value!r} and {other[field]!r}."


def _repeated_ids(ids: Sequence[str]) -> list[str]:
    """Return the ids that occur more than once."""
    return sorted(item for item, times in Counter(ids).items() if times > 1)


def _count(items: Collection[str], noun: str, one: str = "was", many: str = "were") -> str:
    """Return `1 item was`, `3 items were`."""
    return f"1 {noun} {one}" if len(items) == 1 else f"{len(items):,} {noun}s {many}"


def _first_ids(items: Collection[str]) -> str:
    """Return the first few ids, and that there are more: `a, b, c, …`."""
    names = sorted(items)
    return ", ".join([*names[:NAMED], *(["…"] if len(names) > NAMED else [])])


__all__ = ["Comparison", "Flip", "Pair", "ScoreDifference", "compare_runs", "is_right"]


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two runs compared with each other; exactly one of score and refused is given."""

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
    """How each of them ended, or that it runs; None where a run does not state it."""
    differing: tuple[ComparedSetting, ...]
    """Settings whose values are not all equal, of either document."""
    equal: tuple[ComparedSetting, ...]
    """Settings that all runs share, of either document."""
    headlines: tuple[tuple[Headline, ...], ...]
    """The same figures in the same order for each run."""
    withheld: tuple[tuple[str, ...], ...]
    """Which figures of each run are not shown and why, as sentences; empty where none is kept back."""
    pairs: tuple[Pair, ...]
    """The first run against each of the others."""
    smoke: SmokeCheck | None
    """What a smoke run states of a full one. None: this is not one of each."""

    def told(self) -> SettingsDiff:
        """Return the settings as a reader wants them."""
        return diff_settings([*self.differing, *self.equal])


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
    reports = reports or [standing_of(run) for run in runs]
    records = [build_record(run, report.findings) for run, report in zip(runs, reports, strict=True)]
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


def _pair(first: str, a: JudgedRecord, second: str, b: JudgedRecord) -> Pair:
    reasons = refusals(first, a, second, b)
    score = None if reasons else score_difference(a.facts.predictions or [], b.facts.predictions or [])
    return Pair(first=first, second=second, score=score, refused=reasons)


def _with_holm(pairs: Sequence[Pair]) -> Iterator[Pair]:
    """Yield the pairs with p-values adjusted for their number."""
    adjusted = iter(holm([pair.score.p_value for pair in pairs if pair.score]))
    for pair in pairs:
        yield replace(pair, score=replace(pair.score, adjusted_p_value=next(adjusted))) if pair.score else pair
