"""A comparison as rows of text: the same for the page and for CSV."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dashboard.shared.config.settings import shown
from dashboard.shared.words.grades import GRADES, STATUSES, worded
from dashboard.shared.words.text import csv_text
from evidence.bundle.secrets.masking import visible
from evidence.compare.comparison import Comparison, Flip, Pair, ScoreDifference
from evidence.compare.settings import ABSENT, Setting, Source
from evidence.compare.smoke import QUESTIONS, Answer
from evidence.judge.headlines import Headline
from schemas.problems import formats

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

_PLACES: Mapping[Source, str] = {
    "declared": "config.yaml",
    "effective": "run_manifest.json",
    "both": "both",
}
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
"""What a value of the manifest is, for fields whose value alone does not say it."""


def headlines(compared: Comparison) -> tuple[Row, list[Row]]:
    """Return titles and rows of what each run is worth, how it ended, and the same figures of each."""
    rows = [
        ("grade", *(worded(GRADES, grade.name) for grade in compared.grades)),
        ("status", *(worded(STATUSES, status) if status else formats.NOTHING for status in compared.statuses)),
    ]
    for index, headline in enumerate(compared.headlines[0]):
        rows.append((headline.name, *(_headline(of_run[index]) for of_run in compared.headlines)))
    return ("Figure", *compared.names), rows


def settings(compared: Comparison) -> tuple[Row, list[Row]]:
    """Return titles and rows of every setting, those that differ first."""
    told = compared.told()
    rows = [setting(row, len(compared.names)) for row in (*told.differing, *told.unheld, *told.equal)]
    return ("Setting", "Stated in", *compared.names), rows


def setting(found: Setting, runs: int) -> Row:
    """Return a setting: its name, what states it, its value in each of the first `runs` runs."""
    return (found.name, _PLACES[found.source], *(value(one) for one in found.values[:runs]))


def answered(answer: Answer) -> list[Row]:
    """Return what the smoke run states, and what the full run does: each value in words, `169,728 parameters`.

    A null is left out: it says that there is no revision, no change of the code, no seed.
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
    """Return a hash or a commit by its beginning, which tells it apart; any other text as it is."""
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


def flip(found: Flip) -> Row:
    """Return an item that one run alone answered rightly: id, change, prompt, expected, both answers."""
    return (
        found.id,
        "✓ fixed" if found.kind == "fixed" else "✕ broken",
        found.prompt,
        found.expected,
        found.first_answer if found.first_answer is not None else "no answer",
        found.second_answer if found.second_answer is not None else "no answer",
    )


def flips_said(name: str, flips: Sequence[Flip]) -> str:
    """Return how many items flipped against a run of this name, and which way."""
    fixed = sum(flip.kind == "fixed" for flip in flips)
    items = "1 item" if len(flips) == 1 else f"{len(flips)} items"
    return f"{name}: {items} flipped, {fixed} fixed and {len(flips) - fixed} broken"


def value(found: object) -> str:
    """Return a setting's value as YAML writes it, a dash where a run does not state it."""
    return formats.NOTHING if found == ABSENT else shown(found)


def as_csv(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table as CSV, without formulas."""
    head, *body = ([visible(cell) for cell in row] for row in (head, *rows))
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
