"""A comparison as rows of text: the same for the page and for CSV."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dashboard.shared.config.form import as_yaml
from dashboard.shared.words.grades import GRADES, STATUSES, label
from dashboard.shared.words.text import csv_text, shorten
from evidence.bundle.secrets import strip_invisible
from evidence.compare.scores import Comparison, Flip, Pair, PairVerdict, ScoreDifference
from evidence.compare.settings import ABSENT, ComparedSetting, Source
from evidence.compare.smoke import QUESTIONS, SmokeAnswer
from evidence.report import Headline
from schemas import formats

Row = tuple[str, ...]

_DIFFERENCES = (
    "Against the first",
    "Difference",
    "95 % interval",
    "Test and p",
    "Verdict at 0.05",
    "Items",
    "Both right",
    "Only the first",
    "Only this",
    "Neither",
    "Smallest detectable, 80 % power",
)
"""Titles of the rows that `differences` gives."""

_LONGEST_VALUE, _LEAST_P = 40, 0.001
_COSTS = {"last loss": "loss", "training time": "time", "peak memory": "memory"}

_PLACES: Mapping[Source, str] = {"declared": "config.yaml", "effective": "run_manifest.json", "both": "both"}
"""Where a setting is stated."""

_MEANT = {
    "model.revision": "revision {}",
    "model.parameters": "{:,} parameters",
    "dataset.generated_rows": "{:,} generated rows",
    "dataset.generator_seed": "generator seed {}",
    "code.diff_sha256": "changed by {}",
    "training.method": "method {}",
    "model.dtypes.params": "parameters in {}",
    "model.dtypes.compute": "computed in {}",
    "training.microbatch_size": "{:,} examples",
    "training.sequence_length": "{:,} tokens",
    "training.remat": "remat {}",
}
"""What a value of the manifest is, for fields whose value alone does not state it it."""


def headlines(compared: Comparison) -> tuple[Row, list[Row]]:
    """Return titles and rows of what each run is worth, how it ended, and the same figures of each."""
    rows = [
        ("grade", *(label(GRADES, grade.name) for grade in compared.grades)),
        ("status", *(label(STATUSES, status) if status else formats.NOTHING for status in compared.statuses)),
    ]
    for index, headline in enumerate(compared.headlines[0]):
        rows.append((headline.name, *(_headline(of_run[index]) for of_run in compared.headlines)))
    return ("Figure", *compared.names), rows


def settings(compared: Comparison) -> tuple[Row, list[Row]]:
    """Return titles and rows of every setting, those that differ first."""
    told = compared.settings_diff()
    rows = [setting(row, len(compared.names)) for row in (*told.differing, *told.unheld, *told.equal)]
    return ("Setting", "Stated in", *compared.names), rows


def setting(found: ComparedSetting, runs: int) -> Row:
    """Return a setting: its name, what states it, its value in each of the first `runs` runs."""
    return (found.name, _PLACES[found.source], *(value(one) for one in found.values[:runs]))


def answer_rows(answer: SmokeAnswer) -> list[Row]:
    """Return what the smoke run states, and what the full run does: each value in words, `169,728 parameters`.

    A null is left out: it states that there is no revision, no change of the code, no seed.
    """
    fields = dict(QUESTIONS).get(answer.question, ())

    def stated(values: Sequence[object]) -> Row:
        meant = [_MEANT.get(field, "{}") for field in fields] or ["{}"] * len(values)
        return tuple(
            form.format(one if isinstance(one, int | float) else shortened_hash(value(one)))
            for form, one in zip(meant, values, strict=True)
            if one is not None
        )

    return [stated(answer.smoke), stated(answer.full)]


def shortened_hash(text: str) -> str:
    """Return a hash or a commit by its beginning, which distinguishes it; any other text as it is."""
    return text[:12] + "…" if len(text) in {40, 64} and text.isalnum() else text


def differences(compared: Comparison) -> tuple[Row, list[Row]]:
    """Return titles and rows of the paired differences in score, of the pairs that have one."""
    return _DIFFERENCES, [_difference(pair, pair.score) for pair in compared.pairs if pair.score is not None]


def _difference(pair: Pair, found: ScoreDifference) -> Row:
    """Return the paired difference in score of two runs."""
    table = found.table
    return (
        pair.second,
        formats.points(found.difference),
        f"{formats.points(found.low)} to {formats.points(found.high)}",
        f"{found.test}, {_p_value(found)}",
        _verdict(found),
        *(
            formats.count(cell)
            for cell in (table.items, table.both, table.only_first, table.only_second, table.neither)
        ),
        formats.points(found.detectable_difference),
    )


def _verdict(found: ScoreDifference) -> str:
    """Return whether a difference was shown, and that it is one of form."""
    said = "different (p < 0.05)" if found.adjusted_p_value < 0.05 else "no difference shown (p ≥ 0.05)"
    return said if found.gain_of_form is None else f"{said}; {found.gain_of_form}"


def flips(pair: Pair, found: Sequence[Flip]) -> tuple[Row, list[Row]]:
    """Return titles and rows of the items that one run alone answered rightly."""
    rows: list[Row] = [
        (
            flip.id,
            "✓ fixed" if flip.kind == "fixed" else "✕ broken",
            flip.prompt,
            flip.expected,
            answer_said(flip.first_answer),
            answer_said(flip.second_answer),
        )
        for flip in found
    ]
    return ("Item", "Change", "Prompt", "Expected", pair.first, pair.second), rows


def answer_said(answer: str | None) -> str:
    """Return an answer, or that the output lacks one."""
    return "no answer" if answer is None else answer


def score_said(verdict: PairVerdict) -> str:
    """Return the paired difference in score in words, or why it is missing."""
    found = verdict.pair.score
    if found is None:
        return " ".join(verdict.pair.refused)
    table, (low, high) = found.table, (formats.points(end).removesuffix(" points") for end in (found.low, found.high))
    p_value = found.adjusted_p_value
    said = (
        f"{formats.points(found.difference)} ({low} to {high}), {found.test}, "
        f"{f'p = {formats.number(p_value, 3)}' if p_value >= _LEAST_P else f'p < {_LEAST_P}'}"
        f"{' after Holm’s correction' if p_value != found.p_value else ''}; "
        f"of {table.items:,} items {table.only_second:,} fixed, {table.only_first:,} broken"
    )
    return said if found.gain_of_form is None else f"{said}; {found.gain_of_form}"


def costs_said(verdict: PairVerdict) -> str:
    """Return loss, time and memory of the first run and of this one: `time 3 min 20 s → 4 min 00 s (+20 %)`."""
    return " · ".join(
        f"same {_COSTS[one.name]}"
        if one.value == other.value
        else f"{_COSTS[one.name]} {one.as_text()} → {other.as_text()}"
        + (f" ({other.value / one.value - 1:+.0%})".replace("%", " %").replace("-", "−") if one.value else "")
        for one, other in verdict.costs
        if one.value is not None and other.value is not None
    )


def change_said(setting: ComparedSetting) -> str:
    """Return what a user changed under the end of its name, a dash where it is not stated."""
    before, after = (shorten(shortened_hash(value(one)), _LONGEST_VALUE) for one in setting.values)
    return f"{setting.name.rpartition('.')[2]} {before} → {after}"


def flips_said(name: str, flips: Sequence[Flip]) -> str:
    """Return how many items flipped against a run of this name, and which way."""
    fixed = sum(flip.kind == "fixed" for flip in flips)
    items = "1 item" if len(flips) == 1 else f"{len(flips)} items"
    return f"{name}: {items} flipped, {fixed} fixed and {len(flips) - fixed} broken"


def value(found: object) -> str:
    """Return a setting's value as YAML writes it, a dash where a run does not state it."""
    return formats.NOTHING if found == ABSENT else as_yaml(found)


def as_csv(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table as CSV, without formulas."""
    head, *body = ([strip_invisible(cell) for cell in row] for row in (head, *rows))
    return csv_text(head, body)


def _headline(found: Headline) -> str:
    """Return a figure as the other pages write it: fractions in percent."""
    if found.unit != "fraction" or found.value is None:
        return found.as_text()
    said = formats.percent(found.value)
    if found.low is not None:
        said += f" ({formats.percent_range(found.low, found.high)})"
    return said + (f", n = {formats.count(found.of)}" if found.of is not None else "")


def _p_value(found: ScoreDifference) -> str:
    text = f"p = {formats.number(found.p_value, 3)}"
    if found.adjusted_p_value != found.p_value:
        text += f", {formats.number(found.adjusted_p_value, 3)} after Holm's correction"
    return text
