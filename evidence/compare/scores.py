"""Compare runs: their settings, figures and scores, and whether a difference in score is significant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence, Set
from dataclasses import asdict, dataclass, replace
from typing import Literal

from evidence import layout
from evidence.compare.settings import ABSENT, ComparedSetting, SettingsDiff, all_equal, diff_settings, list_settings
from evidence.compare.smoke import SmokeCheck, check_smoke
from evidence.grade import Grade, RunReport
from evidence.proof.verification import grade_run
from evidence.report import Headline, JudgedRecord, build_record, headlines
from evidence.run import Document, Run
from evidence.scores import intervals
from evidence.scores.intervals import MeanInterval, PairedTable
from evidence.scores.reading import accepted_answers, read_scoring
from evidence.scores.recompute import compute_scores, describe_format_gain, is_right
from schemas.formats import quantity

Word = Literal["better", "worse", "cannot tell", "not compared"]
"""Whether a difference in score is significant at `ALPHA` after Holm's correction."""

ALPHA = 0.05
MAX_NAMED_ITEMS = 3
_COSTS = ("last loss", "training time", "peak memory")
_RESULTS = ("first loss", "last loss", "best loss", "exact match")


@dataclass(frozen=True, kw_only=True)
class Flip:
    """An item that only the second run (`fixed`) or only the first run (`broken`) answered correctly."""

    id: str
    prompt: str
    expected: str
    first_answer: str | None
    second_answer: str | None
    kind: Literal["fixed", "broken"]


@dataclass(frozen=True, kw_only=True)
class ScoreDifference:
    """Difference in exact match of two runs on the same items. Differences are fractions, second minus first.

    `low` and `high` are Bonett and Price's 95 % interval, or Student's if items are in `clusters`, which share groups
    or prompts. `adjusted_p_value` is corrected by Holm for all pairs of the comparison, and `detectable_difference` the
    smallest true difference detected with 80 % power, if any is. Errors, items without an output, count as wrong.
    """

    table: PairedTable
    difference: float
    low: float
    high: float
    test: Literal["exact McNemar", "clustered t"]
    p_value: float
    adjusted_p_value: float
    detectable_difference: float | None
    clusters: int | None
    first_errors: int
    second_errors: int
    output_tokens: MeanInterval | None
    gain_of_form: str | None
    flips: tuple[Flip, ...]


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Names of two runs with their difference in score, or the reasons why their scores cannot be compared."""

    first: str
    second: str
    score: ScoreDifference | None
    refused: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Two or more runs side by side, the first one against each of the others.

    Each run has the same headlines in the same order. `smoke` is None unless one is a smoke and one a full run.
    """

    names: tuple[str, ...]
    grades: tuple[Grade, ...]
    statuses: tuple[str | None, ...]
    differing: tuple[ComparedSetting, ...]
    equal: tuple[ComparedSetting, ...]
    headlines: tuple[tuple[Headline, ...], ...]
    withheld: tuple[tuple[str, ...], ...]
    pairs: tuple[Pair, ...]
    smoke: SmokeCheck | None

    def settings_diff(self) -> SettingsDiff:
        """Group the settings by whether they differ, each listed once."""
        return diff_settings([*self.differing, *self.equal])


@dataclass(frozen=True, kw_only=True)
class PairVerdict:
    """Summary of a run against the first one: the settings that a user changed or, without any, `sameness`.

    `costs` are last loss, training time and peak memory, as far as both runs have them.
    """

    pair: Pair
    word: Word
    changed: tuple[ComparedSetting, ...]
    sameness: str
    costs: tuple[tuple[Headline, Headline], ...]


def compare_runs(runs: Sequence[Run], reports: Sequence[RunReport] | None = None) -> Comparison:
    """Compare the first of two or more runs with each of the others.

    Invalid documents, and figures that an error concerns, count as missing (`evidence.report.build_record`). Without
    `reports`, their grades and findings, the runs are checked now.
    """
    if len(runs) < 2:
        message = f"compare_runs needs at least 2 runs; got {len(runs)}"
        raise ValueError(message)
    names = tuple(run.path.resolve().name for run in runs)
    if len(set(names)) < len(names):
        names = tuple(str(run.path) for run in runs)
    reports = reports or [grade_run(run) for run in runs]
    records = [build_record(run, report.findings) for run, report in zip(runs, reports, strict=True)]
    facts = [record.facts for record in records]
    grades = [report.grade for report in reports]
    settings = list_settings(facts)
    pairs = []
    for name, record in zip(names[1:], records[1:], strict=True):
        refused = _refusals(names[0], records[0], name, record)
        score = None if refused else score_difference(facts[0].predictions or [], record.facts.predictions or [])
        pairs.append(Pair(first=names[0], second=name, score=score, refused=refused))
    adjusted = iter(intervals.holm([pair.score.p_value for pair in pairs if pair.score]))
    named = zip(names, facts, grades, strict=True)
    by_mode = {run.manifest["mode"]: (name, run, grade) for name, run, grade in named if run.manifest}
    is_smoke_pair = len(runs) == 2 and set(by_mode) == {"smoke", "full"}
    return Comparison(
        names=names,
        grades=tuple(grades),
        statuses=tuple(record.figures.status for record in records),
        differing=tuple(setting for setting in settings if not all_equal(setting.values)),
        equal=tuple(setting for setting in settings if all_equal(setting.values)),
        headlines=_align_headlines([headlines(record) for record in records]),
        withheld=tuple(record.withheld for record in records),
        pairs=tuple(
            replace(pair, score=replace(pair.score, adjusted_p_value=next(adjusted))) if pair.score else pair
            for pair in pairs
        ),
        smoke=check_smoke(by_mode["smoke"], by_mode["full"]) if is_smoke_pair else None,
    )


def _align_headlines(found: Sequence[tuple[Headline, ...]]) -> tuple[tuple[Headline, ...], ...]:
    """Give every run the same figures; only some runs have pass@k, so the others get one without a value."""
    units = {figure.name: figure.unit for figures in found for figure in figures}
    return tuple(
        tuple(stated.get(name, Headline(name=name, unit=unit, value=None)) for name, unit in units.items())
        for stated in ({figure.name: figure for figure in figures} for figures in found)
    )


def _refusals(first: str, a: JudgedRecord, second: str, b: JudgedRecord) -> tuple[str, ...]:
    if missing := tuple(filter(None, (_missing(first, a), _missing(second, b)))):
        return missing
    items = _item_refusals(first, a.facts.predictions or [], second, b.facts.predictions or [])
    return (*items, *_evaluation_refusals(a.facts.eval_summary or {}, b.facts.eval_summary or {}))


def _missing(name: str, record: JudgedRecord) -> str | None:
    """Describe what a run lacks for any comparison of scores, or return None."""
    facts, rows, advice = record.facts, record.facts.predictions, "run `trainproof check` for details"
    repeated = [item for item, times in Counter(row["id"] for row in rows or ()).items() if times > 1]
    is_invalid = facts.eval_summary is None and layout.EVAL_SUMMARY in facts.files
    reasons = (
        (record.sources is not None, f"{name} is imported from another tool and has not been scored."),
        (facts.manifest is None, f"{name} lacks a valid {layout.MANIFEST}; {advice}."),
        (layout.PREDICTIONS not in facts.files, f"{name} was not evaluated: it lacks {layout.PREDICTIONS}."),
        (rows is None, f"{layout.PREDICTIONS} of {name} has errors; {advice}."),
        (not rows, f"{layout.PREDICTIONS} of {name} is empty."),
        (is_invalid, f"The evaluation of {name} is invalid or contradictory; {advice}."),
        (facts.eval_summary is None, f"{name} lacks a valid {layout.EVAL_SUMMARY}."),
        (repeated, f"{name} answers {quantity(len(repeated), 'item')} more than once ({_first_ids(repeated)})."),
    )
    return next((reason for is_true, reason in reasons if is_true), None)


def _item_refusals(first: str, a: Sequence[Document], second: str, b: Sequence[Document]) -> Iterator[str]:
    ones, others = {row["id"]: row for row in a}, {row["id"]: row for row in b}
    for name, only in ((first, ones.keys() - others.keys()), (second, others.keys() - ones.keys())):
        if only:
            yield f"Only {name} was evaluated on {quantity(len(only), 'item')} ({_first_ids(only)})."
    shared = sorted(ones.keys() & others.keys())
    # Runs of older versions have no groups; then the groups of the other run are used.
    grouped = [item for item in shared if ones[item].get("group") and others[item].get("group")]
    for noun, items, get in (
        ("prompts", shared, lambda row: row["prompt"]),
        ("expected answers", shared, lambda row: row["expected"]),
        ("alternative answers", shared, lambda row: accepted_answers(row)[1:]),
        ("groups", grouped, lambda row: row["group"]),
    ):
        if differing := [item for item in items if get(ones[item]) != get(others[item])]:
            yield f"The {noun} of {quantity(len(differing), 'item')} differ ({_first_ids(differing)})."


def _evaluation_refusals(a: Document, b: Document) -> Iterator[str]:
    one, other = a.get("generation", {}), b.get("generation", {})
    for field in {**one, **other}:
        # The hash follows from the other fields, and the seed does not change the task.
        if field not in ("sha256", "seed") and one.get(field) != other.get(field):
            yield f"Outputs were generated with {field} {one.get(field)!r} and {other.get(field)!r}."
    scoring = read_scoring(a)
    depends_on_version = scoring.depends_on_version or "stop" in one
    one, other = asdict(scoring), asdict(read_scoring(b))
    for field, value in one.items():
        if value != other[field] and (field != "version" or depends_on_version):
            yield f"Answers were read with {field} {value!r} and {other[field]!r}."


def _first_ids(items: Collection[str]) -> str:
    return ", ".join(sorted(items)[:MAX_NAMED_ITEMS]) + (", …" if len(items) > MAX_NAMED_ITEMS else "")


def score_difference(first: Sequence[Document], second: Sequence[Document]) -> ScoreDifference:
    """Compute the difference in score of two runs from prediction rows of the same items."""
    by_id = {row["id"]: row for row in second}
    pairs = [(row, by_id[row["id"]]) for row in first]
    outcomes = [(is_right(a), is_right(b)) for a, b in pairs]
    cells = {"both": (True, True), "only_first": (True, False), "only_second": (False, True), "neither": (False, False)}
    table = PairedTable(**{name: outcomes.count(outcome) for name, outcome in cells.items()})
    if clusters := _cluster_by_id(first, second):
        numbers = [clusters[row["id"]] for row in first]
        differences = [int(also) - int(right) for right, also in outcomes]
        low, high, p_value = intervals.clustered_difference(differences, numbers)
        detectable = intervals.clustered_detectable_difference(differences, numbers)
    else:
        low, high = intervals.paired_difference_interval(table)
        p_value = intervals.mcnemar_exact(table.only_first, table.only_second)
        detectable = intervals.minimum_detectable_difference(table.items, table.only_first + table.only_second)
    answered = [(a, b) for a, b in pairs if a["error"] is None and b["error"] is None]
    tokens = [b["output_tokens"] - a["output_tokens"] for a, b in answered]
    token_clusters = [clusters[a["id"]] for a, _ in answered] if clusters else None
    flips = []
    for (a, b), (right, also) in zip(pairs, outcomes, strict=True):
        answers = {"first_answer": a["extracted_answer"], "second_answer": b["extracted_answer"]}
        item = {name: a[name] for name in ("id", "prompt", "expected")}
        if right != also:
            flips.append(Flip(**item, **answers, kind="broken" if right else "fixed"))
    return ScoreDifference(
        table=table,
        difference=table.difference,
        low=low,
        high=high,
        test="clustered t" if clusters else "exact McNemar",
        p_value=p_value,
        adjusted_p_value=p_value,
        detectable_difference=detectable,
        clusters=len(set(clusters.values())) if clusters else None,
        first_errors=sum(row["error"] is not None for row in first),
        second_errors=sum(row["error"] is not None for row in second),
        output_tokens=intervals.mean_interval(tokens, token_clusters) if tokens else None,
        gain_of_form=describe_format_gain(*(compute_scores(rows)["metrics"] for rows in (first, second))),
        flips=tuple(sorted(flips, key=lambda flip: (flip.kind, flip.id))),
    )


def _cluster_by_id(first: Sequence[Document], second: Sequence[Document]) -> dict[str, int]:
    """Return the cluster of each item in the first of two runs that has clusters."""
    for rows in (first, second):
        clusters, method = intervals.find_clusters(rows)
        if method != "wilson":
            return {row["id"]: cluster for row, cluster in zip(rows, clusters, strict=True)}
    return {}


def judge_pairs(compared: Comparison) -> tuple[PairVerdict, ...]:
    """Summarize each run but the first."""
    settings = (*compared.differing, *compared.equal)
    verdicts = []
    for place, pair in enumerate(compared.pairs, start=1):
        both = [replace(setting, values=(setting.values[0], setting.values[place])) for setting in settings]
        differing = diff_settings([setting for setting in both if setting.values != (ABSENT, ABSENT)]).differing
        # A key that only one config has was added in a newer version and not changed by the user.
        changed = tuple(one for one in differing if one.source != "effective" and ABSENT not in one.values)
        derived = {one.name for one in differing if one not in changed}  # by other settings, the machine or the code
        figures = zip(compared.headlines[0], compared.headlines[place], strict=True)
        stated = [(one, other) for one, other in figures if one.value is not None and other.value is not None]
        have_configs = any(setting.source == "declared" and ABSENT not in setting.values for setting in both)
        word: Word = "not compared" if pair.score is None else "cannot tell"
        if pair.score is not None and pair.score.adjusted_p_value < ALPHA:
            word = "better" if pair.score.difference > 0 else "worse"
        verdicts.append(
            PairVerdict(
                pair=pair,
                word=word,
                changed=changed,
                sameness=_describe_sameness(derived, stated, pair) if have_configs and not changed else "",
                costs=tuple(
                    (replace(one, scope=None), other)
                    for name in _COSTS
                    for one, other in stated
                    if one.name == name and one.scope == other.scope
                ),
            )
        )
    return tuple(verdicts)


def _describe_sameness(names: Set[str], stated: Sequence[tuple[Headline, Headline]], pair: Pair) -> str:
    """Describe two runs that differ in derived settings only: `Same settings, another commit, another result`."""
    kinds: dict[str, Set[str]] = {
        "another commit": {"code.commit"},
        "other uncommitted changes": {"code.diff_sha256"},
        "another device": {"devices.platform", "devices.kind", "devices.count"},
        "other software": {name for name in names if name.startswith("environment.")},
    }
    others = [text for text, fields in kinds.items() if names & fields]
    words = ["Same settings", *(others or ["same code and device"])]
    results = [one.value == other.value for one, other in stated if one.name in _RESULTS]
    if results:
        has_flips = pair.score is not None and bool(pair.score.flips)
        words.append("the same result" if all(results) and not has_flips else "another result")
    return ", ".join(words)
