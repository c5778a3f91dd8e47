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
from dashboard.shared.words.grades import GRADES, STATUSES, Sign, worded
from dashboard.shared.words.text import csv_text, shortened
from evidence.bundle.secrets.masking import visible

Kind = Literal["text", "count", "loss", "share", "minutes", "time", "utc", "line", "sign", "words", "marks", "number"]

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
    Column(key="grade", title="Grade", kind="sign", meaning="What its evidence is worth.", width=134),
    Column(
        key="evidence",
        title="Evidence",
        kind="marks",
        meaning="Run manifest, eval summary and logs: ✓ valid, ✕ errors, – missing, ≈ another tool's figures.",
        width=136,
    ),
    Column(key="repeated", title="Repeated", kind="text", meaning="By somebody whom you trust, how much.", width=140),
    Column(key="status", title="Status", kind="sign", meaning="How it ended, or that it runs.", width=126),
    Column(key="curve", title="Loss curve", kind="line", meaning="The loss over the run.", width=110),
    Column(key="loss", title="Last loss", kind="loss", meaning="Loss of the last logged step.", width=84),
    Column(key="score", title="Score", kind="share", meaning="Exact match on the evaluation set.", width=76),
    Column(key="interval", title="95 % interval", kind="text", meaning="Wilson interval of the score.", width=112),
    Column(key="mode", title="Mode", kind="text", meaning="smoke proves the pipeline, full is meant.", width=62),
    Column(key="model", title="Model", kind="text", meaning="Model as it was built.", width=128),
    Column(key="device", title="Device", kind="text", meaning="Devices used.", width=110),
    Column(key="steps", title="Steps", kind="count", meaning="Optimizer steps completed.", width=70),
    Column(key="tokens", title="Tokens", kind="count", meaning="Tokens learned from.", width=90),
    Column(key="minutes", title="Duration", kind="minutes", meaning="From start to end, in minutes.", width=90),
    Column(key="started", title="Started", kind="time", meaning="In your time zone.", width=140),
    Column(key="tag", title="Tags", kind="words", meaning="Tags given here; they are not evidence.", width=130),
    Column(key="method", title="Method", kind="text", meaning="Which parameters were trained.", width=72),
    Column(key="problems", title="Problems", kind="count", meaning="Errors and warnings of the check.", width=84),
    _more("note", "Note", "text", "A note that was written here; it is not evidence.", 300),
    _more("planned", "Planned", "count", "Optimizer steps asked for."),
    _more("baseline", "Untrained", "share", "Score of the model before training, on the same items.", 90),
    _more("problem", "First problem", "text", "The worst finding.", 420),
    _more("started_utc", "Started, UTC", "utc", "The same moment for every reader.", 140),
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
    """Return the column of a key; of a setting or figure as its values in these rows ask for it."""
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


def table(rows: Sequence[Row], columns: Sequence[Column]) -> pa.Table:
    """Return the rows with these columns as Streamlit sends them, grades and statuses with their symbols."""
    return arrow.table({column.key: _CELLS[column.kind]([row.get(column.key) for row in rows]) for column in columns})


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
    return _words([[_SIGNED.get(value) or worded(_ALL, value)] if value else () for value in values])


_ALL: Mapping[str, Sign] = {**STATUSES, **GRADES}
_SIGNED = {word: worded(_ALL, word) for word in _ALL}
_CELLS: Mapping[Kind, Callable[[list[Any]], pa.Array]] = {
    "text": _texts,
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
    return shortened(visible(str(value)).replace("\n", " "), LONGEST_CELL)


def _csv(value: object) -> object:
    return " ".join(map(str, value)) if isinstance(value, tuple) else value
