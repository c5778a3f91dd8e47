"""The table of runs: its columns, and rows for the grid or as CSV for a spreadsheet.

Beside the fixed columns every setting and every figure of the runs can be one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from dashboard.shared.tables import arrow
from dashboard.shared.tables.run_rows import Row
from dashboard.shared.tables.score_cell import Interval, picture
from dashboard.shared.words.grades import GRADES, STATUSES, Sign, label
from dashboard.shared.words.text import csv_text, shorten
from evidence.bundle.secrets import strip_invisible

Kind = Literal[
    "text",
    "said",
    "count",
    "loss",
    "share",
    "minutes",
    "time",
    "utc",
    "line",
    "sign",
    "words",
    "marks",
    "number",
    "picture",
]

LONGEST_CELL = 300
"""Characters of a text that a cell holds; the run's own page and the CSV have all of it."""


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column: how the search box calls it, its title, what it means, and how its values are shown."""

    key: str
    title: str
    kind: Kind
    meaning: str
    is_first_choice: bool = True
    width: int | None = None


def _more(key: str, title: str, kind: Kind, meaning: str, width: int | None = None) -> Column:
    return Column(key=key, title=title, kind=kind, meaning=meaning, width=width, is_first_choice=False)


COLUMNS = (
    Column(key="run", title="Run", kind="text", meaning="Name of the run and of its folder."),
    Column(
        key="grade",
        title="Grade",
        kind="sign",
        meaning="What its evidence is worth; of a sound run that did not succeed, how it ended.",
        width=130,
    ),
    Column(
        key="evidence",
        title="Evidence",
        kind="marks",
        meaning="Run manifest, eval summary and logs: ✓ valid, ✕ errors, – missing, ≈ another tool's figures.",
        width=124,
    ),
    Column(
        key="changed",
        title="Changed",
        kind="said",
        meaning="What differs from the run that it continues, else from the one before of the same model and mode, "
        "else from the default.",
        width=150,
    ),
    Column(
        key="interval",
        title="Score",
        kind="picture",
        meaning="Exact match with its 95 % interval, from 0 to 100 %; hollow: untrained. Pale and struck out: the run "
        "contradicts itself.",
        width=166,
    ),
    Column(key="loss", title="Last loss", kind="loss", meaning="Loss of the last logged step.", width=80),
    Column(key="curve", title="Loss curve", kind="line", meaning="The loss over the run.", width=100),
    Column(key="started", title="Started", kind="time", meaning="How long ago.", width=110),
    Column(key="minutes", title="Duration", kind="minutes", meaning="From start to end, in minutes.", width=84),
    Column(key="tag", title="Tags", kind="words", meaning="Tags given here; they are not evidence.", width=110),
    Column(key="mode", title="Mode", kind="text", meaning="smoke proves the pipeline, full is meant.", width=62),
    Column(key="model", title="Model", kind="text", meaning="Model as it was built.", width=128),
    Column(key="device", title="Device", kind="text", meaning="Devices used.", width=110),
    Column(key="steps", title="Steps", kind="count", meaning="Optimizer steps completed.", width=70),
    Column(key="tokens", title="Tokens", kind="count", meaning="Tokens learned from.", width=90),
    Column(key="repeated", title="Repeated", kind="text", meaning="By somebody whom you trust, how much.", width=140),
    Column(key="method", title="Method", kind="text", meaning="Which parameters were trained.", width=72),
    Column(key="problems", title="Problems", kind="count", meaning="Errors and warnings of the check.", width=84),
    _more("status", "Status", "sign", "How it ended, or that it runs.", 126),
    _more("score", "Score, figure", "share", "Exact match on the evaluation set.", 90),
    _more("note", "Note", "text", "A note that was written here; it is not evidence.", 300),
    _more("planned", "Planned", "count", "Optimizer steps asked for."),
    _more("baseline", "Untrained", "share", "Score of the model before training, on the same items.", 90),
    _more("problem", "First problem", "text", "The worst finding.", 420),
    _more("started_utc", "Started, UTC", "utc", "The moment itself, the same for every reader.", 140),
    _more("archived", "Archived", "text", "Whether it is archived.", 84),
)
BY_KEY: Mapping[str, Column] = {column.key: column for column in COLUMNS}
FIRST_CHOICE = tuple(column.key for column in COLUMNS if column.is_first_choice and column.key != "run")
"""Columns that are shown until others are chosen, after that of the run's name, which always stands."""
QUERY_FIELDS = tuple(
    column.key for column in COLUMNS if column.kind not in {"line", "utc"} and column.key != "interval"
)
SORT_FIELDS = QUERY_FIELDS
GROUP_FIELDS = ("grade", "status", "mode", "model", "device", "method", "tag")
"""Fixed columns in which runs can agree; any setting is one too."""


def column_of(key: str, rows: Sequence[Row] = ()) -> Column:
    """Return the column of a key; of a setting or figure as its values in these rows request it."""
    if key in BY_KEY:
        return BY_KEY[key]
    found: list[Any] = [value for row in rows if (value := row.get(key)) is not None]
    meaning = (
        "Figure of the run." if rows and any(key in row.summary.figures for row in rows) else "Setting of the run."
    )
    kind: Kind = "text"
    if found and all(isinstance(value, int | float) and not isinstance(value, bool) for value in found):
        # Figures are floats all of them; a count or a number of bytes has no fraction.
        kind = "count" if all(float(value).is_integer() for value in found) else "number"
    return _more(key, key, kind, meaning)


def mark_of(row: Row) -> str | None:
    """Return the one word that a run is marked with: how it ended where it did not succeed, else its grade."""
    summary = row.summary
    ended = summary.status if summary.status in STATUSES and summary.status != "succeeded" else None
    return ended if ended and summary.grade in {"partial", "measured", "template"} else summary.grade


def telling(rows: Sequence[Row], columns: Sequence[Column]) -> tuple[list[Column], list[str]]:
    """Return the columns that distinguish these rows, and the values that all of them share: `model tiny-gpt2`.

    A column without a value in any row means nothing. Of one row every column is kept.
    """
    kept, same = [], []
    for column in columns:
        values = [row.get(column.key) for row in rows] if len(rows) > 1 else []
        is_empty = bool(values) and all(value in (None, "", ()) for value in values)
        may_go = column.kind in {"text", "count", "said"} and column.key != "run"
        if is_empty and column.key not in {"run", "grade"}:
            continue
        if may_go and values and all(value == values[0] for value in values):
            same.append(f"{column.title.lower()} {shown_text(values[0])}")
        else:
            kept.append(column)
    return kept, same


def table(rows: Sequence[Row], columns: Sequence[Column], theme: str | None = None) -> pa.Table:
    """Return the rows with these columns as Streamlit sends them, grades and statuses with their symbols."""
    found = {}
    for column in columns:
        values = [mark_of(row) if column.key == "grade" else row.get(column.key) for row in rows]
        if column.kind == "picture":
            values = [picture(value, theme) if isinstance(value, Interval) else None for value in values]
        found[column.key] = _CELLS[column.kind](values)
    return arrow.table(found)


def as_csv(rows: Sequence[Row], columns: Sequence[Column]) -> bytes:
    """Return the rows as CSV for a spreadsheet, with every value whole; no cell of it is a formula."""
    keys = [column.key for column in columns if column.kind != "line"]
    return csv_text(keys, ([_csv(row.get(key)) for key in keys] for row in rows)).encode("utf-8")


def _texts(values: list[Any]) -> pa.Array:
    return arrow.texts([None if value is None else shown_text(value) for value in values])


def _percent(values: list[Any]) -> pa.Array:
    return arrow.floats([None if value is None else 100 * value for value in values])


def _lines(values: list[Any]) -> pa.Array:
    return arrow.lists_of_floats([value or () for value in values])


def _words(values: list[Any]) -> pa.Array:
    return arrow.lists_of_texts([value or () for value in values])


def _signs(values: list[Any]) -> pa.Array:
    """Return words with their symbols as the grid's labels take them; none for no word."""
    return _words([[_SIGNED.get(value) or label(_ALL, value)] if value else () for value in values])


_ALL: Mapping[str, Sign] = {**STATUSES, **GRADES}
_SIGNED = {word: label(_ALL, word) for word in _ALL}
_CELLS: Mapping[Kind, Callable[[list[Any]], pa.Array]] = {
    "text": _texts,
    "picture": arrow.texts,
    "said": arrow.texts,
    "count": arrow.floats,
    "loss": arrow.floats,
    "number": arrow.floats,
    "minutes": arrow.floats,
    "share": _percent,
    "time": arrow.times,
    "utc": arrow.times,
    "line": _lines,
    "words": _words,
    "marks": _words,
    "sign": _signs,
}


def shown_text(value: object) -> str:
    """Return a value as one line of a cell, without characters that cannot be seen."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return shorten(strip_invisible(str(value)).replace("\n", " "), LONGEST_CELL)


def _csv(value: object) -> object:
    return " ".join(map(str, value)) if isinstance(value, tuple) else value
