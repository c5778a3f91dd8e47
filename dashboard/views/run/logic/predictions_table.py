"""The predictions of a run as a table: outcomes in words, filters, and the scores by group."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from dashboard.shared.charts.scores_figure import ItemScore
from dashboard.shared.words.text import both_ends, glimpse, shorten
from evidence.bundle.secrets import strip_invisible
from evidence.scores.reading import TAGS
from schemas import formats
from schemas.reading import get_bool, get_number, get_str

Row = Mapping[str, Any]

GROUPS = ("section", "category", "difficulty")
FILTERS: Mapping[str, str] = {
    "section": "Section",
    "category": "Category",
    "difficulty": "Difficulty",
    "finish_reason": "Ended by",
}
"""Fields that the reader can choose values of, with their titles."""

PAGE_ROWS = 1000
"""Rows sent to the browser at a time."""

_LONGEST = 300

OUTCOMES: Mapping[str, Callable[[Row], bool]] = {
    "all": lambda row: True,
    "right": lambda row: row.get("correct") is True,
    "wrong": lambda row: row.get("correct") is False,
    "wrong format": lambda row: row.get("format_ok") is False,
    "error": lambda row: row.get("error") is not None,
}


def groups(rows: Sequence[Row]) -> dict[str, list[str]]:
    """Return the values of each field to choose by, as far as the rows state any."""
    found = {name: sorted({row[name] for row in rows if isinstance(row.get(name), str)}) for name in FILTERS}
    return {name: values for name, values in found.items() if values}


def filter_rows(rows: Sequence[Row], *, outcome: str, groups: Mapping[str, Sequence[str]], words: str) -> list[Row]:
    """Return the rows with this outcome, one of the chosen values of each field and all the words, wrong ones first."""
    wanted = words.lower().split()
    found = (
        row
        for row in rows
        if OUTCOMES[outcome](row)
        and all(not chosen or row.get(group) in chosen for group, chosen in groups.items())
        and all(word in _text(row) for word in wanted)
    )
    return sorted(found, key=lambda row: _ORDER[_outcome(row)])


def table_with_outputs(rows: Sequence[Row]) -> pa.Table:
    """Return `table` with the whole output of each row, shortened where it is long."""
    outputs = [glimpse(strip_invisible(get_str(row, "output_text") or ""), _LONGEST) for row in rows]
    return table(rows).append_column("output", pa.array(outputs, pa.string()))


def table(rows: Sequence[Row]) -> pa.Table:
    """Return the rows as the table shows them, long texts shortened; without the columns that no row has a value for.

    `tokens` is `[rows]` float64, all other columns are text.
    """
    cells: list[Mapping[str, Any]] = [
        {
            "id": get_str(row, "id"),
            "outcome": _outcome(row),
            "form": _FORMS[get_bool(row, "format_ok")],
            "prompt": glimpse(strip_invisible(get_str(row, "prompt") or ""), _LONGEST),
            "expected": shorten(strip_invisible(_expected_answers(row)), _LONGEST),
            "got": shorten(strip_invisible(get_str(row, "extracted_answer") or ""), _LONGEST) or None,
            "tokens": get_number(row, "output_tokens"),
            "finish": get_str(row, "finish_reason"),
            **{group: get_str(row, group) for group in GROUPS},
        }
        for row in rows
    ]
    columns = {name: [row[name] for row in cells] for name in cells[0]} if cells else {}
    return pa.table(
        {
            name: pa.array(values, pa.float64() if name == "tokens" else pa.string())
            for name, values in columns.items()
            if any(value is not None for value in values)
        }
    )


def score_rows(eval_summary: Row) -> list[tuple[str, ...]]:
    """Return the scores over all items and by group.

    These are group, value, items, exact match, its interval, form, untrained, lenient, and untrained lenient.
    """
    baseline = _mapping(eval_summary.get("baseline"))
    rows = [_score_row("all items", "", eval_summary.get("metrics"), baseline.get("metrics"))]
    for group in GROUPS:
        values = _mapping(_mapping(eval_summary.get("groups")).get(group))
        untrained = _mapping(_mapping(baseline.get("groups")).get(group))
        rows += [_score_row(group, value, values[value], untrained.get(value)) for value in sorted(values)]
    return rows


def scores_of(eval_summary: Row) -> dict[str, list[ItemScore]]:
    """Return the scores of each group's values, as far as they are stated; under "" that of all items."""
    baseline = _mapping(eval_summary.get("baseline"))
    found = {"": [("all items", eval_summary.get("metrics"), baseline.get("metrics"))]}
    for group in GROUPS:
        values = _mapping(_mapping(eval_summary.get("groups")).get(group))
        untrained = _mapping(_mapping(baseline.get("groups")).get(group))
        order = sorted(values, key=lambda value: (_LEVELS.get(value, 0), value))
        found[group] = [(value, values[value], untrained.get(value)) for value in order]
    scores = {group: [one for row in rows if (one := _score(*row)) is not None] for group, rows in found.items()}
    return {group: some for group, some in scores.items() if some}


_LEVELS = {"easy": 1, "medium": 2, "hard": 3}


def _score(name: str, metrics: Any, untrained: Any) -> ItemScore | None:
    exact, before = _mapping(_mapping(metrics).get("exact_match")), _mapping(_mapping(untrained).get("exact_match"))
    value, items = get_number(exact, "value"), get_number(exact, "n")
    if value is None or items is None:
        return None
    low, high = get_number(exact, "interval", "low"), get_number(exact, "interval", "high")
    return ItemScore(
        name=name, items=int(items), value=value, low=low, high=high, untrained=get_number(before, "value")
    )


def headline(score: ItemScore) -> str:
    """Return a score in a sentence, such as `95.0 % of 100 items are right (88.8–97.8 %). Untrained: 0.0 %.`."""
    said = f"{formats.percent(score.value)} of {score.items:,} items are right"
    before = "" if score.untrained is None else f" Untrained: {formats.percent(score.untrained)}."
    return f"{said} ({formats.percent_range(score.low, score.high)}).{before}"


def parts_of_output(row: Row) -> list[tuple[str, str]]:
    """Return an output in pieces, each with what it is: `tag` of the required form, `answer` that was read, or ``.

    Keys and passwords are masked. Of a long output the beginning, the end and what surrounds the answer are kept.

    >>> parts_of_output({"output_text": "<answer>4</answer>", "extracted_answer": "4"})
    [('tag', '<answer>'), ('answer', '4'), ('tag', '</answer>')]
    """
    text, answer = get_str(row, "output_text") or "", get_str(row, "extracted_answer") or ""
    at = text.rfind(answer) if answer else -1
    before, answer, after = (text, "", "") if at < 0 else (text[:at], answer, text[at + len(answer) :])
    of_answer = max(_LONGEST_OUTPUT // 2, _LONGEST_OUTPUT - len(before) - len(after))
    left = _LONGEST_OUTPUT - min(len(answer), of_answer)
    room_after = min(len(after), max(left // 2, left - len(before)))
    pieces = [
        ("", both_ends(before, left - room_after)),
        ("answer", both_ends(answer, of_answer)),
        ("", both_ends(after, room_after)),
    ]
    return [
        ("tag" if piece in TAGS else kind, piece)
        for kind, whole in pieces
        for piece in (_TAG.split(whole) if kind == "" else [whole])
        if piece
    ]


_LONGEST_OUTPUT = 8_000
_TAG = re.compile("(" + "|".join(map(re.escape, TAGS)) + ")")


def _score_row(group: str, value: str, metrics: Any, untrained: Any) -> tuple[str, ...]:
    exact, form = _mapping(_mapping(metrics).get("exact_match")), _mapping(_mapping(metrics).get("format_compliance"))
    return (
        group,
        value,
        formats.count(get_number(exact, "n")),
        formats.percent(get_number(exact, "value")),
        formats.percent_range(get_number(exact, "interval", "low"), get_number(exact, "interval", "high")),
        formats.percent(get_number(form, "value")),
        formats.percent(get_number(_mapping(untrained), "exact_match", "value")),
        formats.percent(get_number(_mapping(metrics), "lenient_match", "value")),
        formats.percent(get_number(_mapping(untrained), "lenient_match", "value")),
    )


_FORMS = {True: "✓ ok", False: "✕ wrong", None: None}
_WORDS = {True: "✓ right", False: "✕ wrong", None: "? not stated"}


_ORDER = {"! error": 0, "✕ wrong": 1, "? not stated": 2, "✓ right": 3}


def _outcome(row: Row) -> str:
    if row.get("error") is not None:
        return "! error"
    return _WORDS[get_bool(row, "correct")]


def _expected_answers(row: Row) -> str:
    """Return the answers that count as right, those after the first behind `or`."""
    others = row.get("also_expected")
    texts = [get_str(row, "expected") or "", *(others if isinstance(others, list) else [])]
    return " or ".join(map(str, texts))


def _text(row: Row) -> str:
    return " ".join(
        get_str(row, name) or "" for name in ("id", "prompt", "expected", "output_text", "extracted_answer")
    ).lower()


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
