"""The parts of a comparison: figures side by side, settings, what a smoke run proved, and the paired score."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from dashboard.components import markup
from dashboard.logic import numbers
from dashboard.logic.settings import shown
from dashboard.logic.text import shortened
from evidence.compare import ABSENT, Comparison, Flip, Pair, ScoreDifference, Setting
from evidence.headlines import Headline
from evidence.smoke import SmokeCheck

_LONGEST = 160
_MOST_FLIPS = 200
_SETTINGS_SHOWN = 15


def headlines(compared: Comparison) -> None:
    """Draw the same figures of each run, one run in a column."""
    names = [headline.name for headline in compared.headlines[0]]
    rows = [(name, *(_headline(of_run[index]) for of_run in compared.headlines)) for index, name in enumerate(names)]
    columns = range(1, len(compared.names) + 1)
    markup.table(["Figure", *compared.names], rows, numbers=columns)


def settings(compared: Comparison) -> None:
    """Draw the settings that differ; those that are equal are folded."""
    st.header("Settings that differ", anchor=False)
    if not compared.differing:
        markup.note("None: these runs were made in the same way.")
    else:
        _settings(compared.names, compared.differing[:_SETTINGS_SHOWN])
    if len(compared.differing) > _SETTINGS_SHOWN:
        with st.expander(f"{len(compared.differing) - _SETTINGS_SHOWN} more settings differ"):
            _settings(compared.names, compared.differing[_SETTINGS_SHOWN:])
    with st.expander(f"{len(compared.equal)} settings are equal"):
        _settings(compared.names[:1], compared.equal, title="All runs")


def smoke(check: SmokeCheck) -> None:
    """Draw what the smoke run says of the full one, and what it does not."""
    st.header("What the smoke run proves", anchor=False)
    answers = {True: "✓ yes", False: "≠ no", None: "? not stated"}
    left, right = st.columns([3, 2], gap="large")
    with left:
        markup.table(
            ["Question", "Answer", "Smoke", "Full"],
            [
                (answer.question.capitalize(), answers[answer.same], _values(answer.smoke), _values(answer.full))
                for answer in check.answers
            ],
        )
    with right:
        markup.bullets("It proves", check.proved)
        markup.bullets("It does not prove", check.not_proved)


def score(pair: Pair) -> None:
    """Draw the paired difference in score, or why there is none."""
    st.header("Difference in score", anchor=False)
    markup.note(f"{pair.second} against {pair.first}")
    if pair.score is None:
        markup.bullets("The scores of these two cannot be compared:", pair.refused)
        return
    _difference(pair.score)
    _flips(pair, pair.score)


def _headline(found: Headline) -> str:
    """Return a figure as the other pages write it: fractions in percent."""
    if found.unit != "fraction" or found.value is None:
        return found.as_text()
    said = numbers.percent(found.value)
    if found.low is not None:
        said += f" ({numbers.interval(found.low, found.high)})"
    return said + (f", n = {numbers.count(found.of)}" if found.of is not None else "")


def _difference(found: ScoreDifference) -> None:
    verdict = "more than chance" if found.adjusted_p_value < 0.05 else "chance is enough to explain it"
    table = found.table
    markup.table(
        [
            "Difference",
            "95 % interval",
            f"{found.test}, p",
            "Verdict at 0.05",
            "Items",
            "Smallest detectable, 80 % power",
        ],
        [
            (
                numbers.points(found.difference),
                f"{numbers.points(found.low)} to {numbers.points(found.high)}",
                _p_value(found),
                verdict,
                numbers.count(table.items),
                numbers.points(found.detectable_difference),
            )
        ],
    )
    markup.table(
        ["Both right", "Only the first", "Only the second", "Neither"],
        [[numbers.count(cell) for cell in (table.both, table.only_first, table.only_second, table.neither)]],
    )


def _p_value(found: ScoreDifference) -> str:
    text = f"p = {numbers.digits(found.p_value, 3)}"
    if found.adjusted_p_value != found.p_value:
        text += f", {numbers.digits(found.adjusted_p_value, 3)} after Holm's correction"
    return text


def _flips(pair: Pair, found: ScoreDifference) -> None:
    if not found.flips:
        markup.note("No item was answered rightly by one run only.")
        return
    fixed = sum(flip.kind == "fixed" for flip in found.flips)
    with st.expander(f"{len(found.flips)} items flipped: {fixed} fixed, {len(found.flips) - fixed} broken"):
        markup.table(
            ["Item", "Change", "Prompt", "Expected", pair.first, pair.second],
            [_flip(flip) for flip in found.flips[:_MOST_FLIPS]],
        )


def _flip(flip: Flip) -> Sequence[str]:
    return (
        flip.id,
        "✓ fixed" if flip.kind == "fixed" else "✕ broken",
        shortened(flip.prompt, _LONGEST),
        flip.expected,
        flip.first_answer if flip.first_answer is not None else "no answer",
        flip.second_answer if flip.second_answer is not None else "no answer",
    )


def _settings(names: Sequence[str], rows: Sequence[Setting], *, title: str | None = None) -> None:
    head = [title] if title is not None else list(names)
    markup.table(
        ["Setting", "Stated in", *head],
        [
            (
                row.name,
                "run_manifest.json" if row.source == "effective" else "config.yaml",
                *(_value(value) for value in row.values[: len(head)]),
            )
            for row in rows
        ],
    )


def _values(values: Sequence[object]) -> str:
    return ", ".join(_value(value) for value in values)


def _value(value: object) -> str:
    if value == ABSENT:
        return numbers.NOTHING
    text = shown(value)
    # Hashes and commits are told apart by their beginning; the whole stands in the manifest.
    return text[:12] + "…" if len(text) in {40, 64} and text.isalnum() else shortened(text, _LONGEST)
