"""The list of runs: its columns, search, order, groups and CSV."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache, cached_property
from typing import Any, Literal

import pandas as pd

from dashboard.shared.config import form
from dashboard.shared.config.form import as_yaml
from dashboard.shared.tables import query
from dashboard.shared.words.evidence import marks
from dashboard.shared.words.grades import GRADES, STATUSES, Sign, label
from dashboard.shared.words.text import csv_text, shorten
from evidence.bundle.secrets import strip_invisible
from evidence.index.summary import RunSummary
from schemas import formats
from schemas.formats import join_words, quantity
from schemas.reading import parse_time

Kind = Literal["text", "count", "loss", "number", "percent", "progress", "minutes", "time", "utc", "line", "labels"]

LONGEST_CELL = 300
"""Characters of a text in a cell; the run's page and the CSV have all of it."""

PAGE_ROWS = 2000
"""Rows that are sent to the browser at once."""


@dataclass(frozen=True, kw_only=True)
class Column:
    """Column of the list: its name in the search box, title, format and meaning."""

    key: str
    title: str
    kind: Kind
    meaning: str
    width: int | None = None
    is_default: bool = True


def _column(
    key: str, title: str, kind: Kind, meaning: str, width: int | None = None, *, hidden: bool = False
) -> Column:
    return Column(key=key, title=title, kind=kind, meaning=meaning, width=width, is_default=not hidden)


_MARKS_HELP = "Run manifest, eval summary and logs: ✓ valid, ✕ errors, – missing, ≈ figures of another tool."
_CHANGED_HELP = "Settings that differ from the run it continues, the previous run of the same model, or the defaults."
COLUMNS = (
    _column("run", "Run", "text", "Name of the run folder."),
    _column("grade", "Grade", "labels", "Grade, or how an unfinished run ended.", 130),
    _column("evidence", "Evidence", "labels", _MARKS_HELP, 124),
    _column("changed", "Changed", "text", _CHANGED_HELP, 200),
    _column("score", "Score", "progress", "Exact match on the evaluation set; empty for contradictory runs.", 120),
    _column("interval", "95 % interval", "text", "Interval of the score.", 110),
    _column("loss", "Last loss", "loss", "Loss of the last logged step.", 80),
    _column("curve", "Loss curve", "line", "Loss over the run.", 100),
    _column("started", "Started", "time", "Start of the run.", 110),
    _column("minutes", "Duration", "minutes", "Minutes from start to end.", 84),
    _column("tag", "Tags", "labels", "Tags that users added.", 110),
    _column("mode", "Mode", "text", "smoke or full.", 62),
    _column("model", "Model", "text", "Name of the model.", 128),
    _column("device", "Device", "text", "Devices in use.", 110),
    _column("steps", "Steps", "count", "Optimizer steps completed.", 70),
    _column("tokens", "Tokens", "count", "Training tokens seen.", 90),
    _column("repeated", "Reproduced", "text", "How much a trusted person reproduced.", 140),
    _column("method", "Method", "text", "Which parameters were trained.", 72),
    _column("problems", "Problems", "count", "Number of errors and warnings.", 84),
    _column("status", "Status", "labels", "Running, or how the run ended.", 126, hidden=True),
    _column("note", "Note", "text", "Note that a user wrote.", 300, hidden=True),
    _column("planned", "Planned", "count", "Optimizer steps requested.", hidden=True),
    _column("memory", "Peak memory", "text", "Peak memory, and what it was measured of.", 220, hidden=True),
    _column("baseline", "Baseline", "percent", "Score of the untrained model on the same items.", 90, hidden=True),
    _column("problem", "First problem", "text", "The worst problem.", 420, hidden=True),
    _column("started_utc", "Started, UTC", "utc", "Start of the run in UTC.", 140, hidden=True),
    _column("archived", "Archived", "text", "Whether the run is archived.", 84, hidden=True),
)
BY_KEY: Mapping[str, Column] = {column.key: column for column in COLUMNS}
DEFAULT_COLUMNS = tuple(column.key for column in COLUMNS if column.is_default and column.key != "run")
QUERY_FIELDS = tuple(
    column.key for column in COLUMNS if column.kind not in {"line", "utc"} and column.key != "interval"
)
GROUP_FIELDS = ("grade", "status", "mode", "model", "device", "method", "tag")
"""Columns by which runs can be grouped; settings are others."""

_NAME = re.compile(r"[A-Za-z][\w./@-]{0,99}")
"""Names of settings and figures that can be searched; an invalid file may contain any others."""
_YEARS = range(1902, 2201)
"""Years that pandas and the browser can display."""


@dataclass(frozen=True, eq=False)
class Row:
    """A run in the list: its summary, the values of the fixed columns, and its lower-case text for the search."""

    summary: RunSummary
    cells: dict[str, Any]
    text: str

    @property
    def name(self) -> str:
        """Name of the run folder."""
        return self.summary.path.name

    @property
    def shown_name(self) -> str:
        """The name without invisible characters."""
        return strip_invisible(self.name)

    def get(self, key: str) -> Any:
        """Return the value of a column, setting or figure, or None."""
        if key in self.cells:
            return self.cells[key]
        settings = self.summary.settings
        return settings[key] if key in settings else self.summary.figures.get(key)


class RunList:
    """Runs of a folder, newest first, and the values to choose from."""

    def __init__(self, summaries: Sequence[RunSummary]) -> None:
        changes = describe_changes(summaries)
        self.rows = [_row(summary, changed) for summary, changed in zip(summaries, changes, strict=True)]
        self.by_name = {row.name: row for row in self.rows}
        settings = {name for summary in summaries for name in summary.settings} - BY_KEY.keys()
        figures = {name for summary in summaries for name in summary.figures} - BY_KEY.keys() - settings
        self.settings = sorted(filter(_NAME.fullmatch, settings))
        self.figures = sorted(filter(_NAME.fullmatch, figures))

    @cached_property
    def grades(self) -> Mapping[str, int]:
        """Number of runs of each grade."""
        return Counter(row.summary.grade for row in self.rows)

    @cached_property
    def archived(self) -> int:
        """Number of archived runs."""
        return sum(row.summary.archived for row in self.rows)

    def choices(self, key: str) -> list[str]:
        """Return the values of mode, status or tag, sorted."""
        values = (row.get(key) for row in self.rows)
        return sorted({one for value in values for one in (value if isinstance(value, tuple) else (value,)) if one})


def _row(summary: RunSummary, changed: str) -> Row:
    started = parse_time(summary.started_at or "")
    started = started if started is not None and started.year in _YEARS else None
    is_sound = summary.grade != "contradictory"
    score, low, high = (summary.score, summary.score_low, summary.score_high) if is_sound else (None, None, None)
    cells = {
        "run": summary.path.name,
        "grade": summary.grade,
        "evidence": marks(summary.documents),
        "changed": changed,
        "repeated": summary.coverage or None,
        "status": summary.status,
        "mode": summary.mode,
        "model": summary.model,
        "method": summary.method,
        "device": summary.device,
        "steps": summary.steps_done,
        "planned": summary.steps_planned,
        "tokens": summary.tokens_seen,
        "curve": summary.loss_points if is_sound else (),
        "loss": summary.last_loss,
        "score": score,
        "interval": None if low is None else formats.percent_range(low, high),
        "memory": summary.peak_memory.as_text() if summary.peak_memory else None,
        "baseline": summary.baseline_score,
        "minutes": summary.duration_seconds / 60 if summary.duration_seconds is not None else None,
        "started": started,
        "started_utc": started,
        "problems": summary.problem_count,
        "problem": summary.first_problem.what if summary.first_problem else None,
        "tag": summary.tags,
        "note": summary.note,
        "archived": "yes" if summary.archived else "no",
    }
    words = [value for key, value in cells.items() if isinstance(value, str) and key not in {"archived", "interval"}]
    return Row(summary, cells, "\n".join([*words, *summary.tags]).lower())


def column_of(key: str, rows: Sequence[Row] = ()) -> Column:
    """Return a column; that of a setting or figure has the format of its values in the rows."""
    if key in BY_KEY:
        return BY_KEY[key]
    found = [value for row in rows if (value := row.get(key)) is not None]
    is_figure = any(key in row.summary.figures for row in rows)
    kind: Kind = "text"
    if found and all(isinstance(value, int | float) and not isinstance(value, bool) for value in found):
        kind = "count" if all(float(value).is_integer() for value in found) else "number"
    return _column(key, key, kind, "Figure of the run." if is_figure else "Setting of the run.", hidden=True)


def mark_of(row: Row) -> str | None:
    """Return the word that marks a run: its grade, or how it ended if it did not succeed."""
    summary = row.summary
    is_unfinished = summary.status in STATUSES and summary.status != "succeeded"
    return summary.status if is_unfinished and summary.grade in {"partial", "measured", "template"} else summary.grade


def split_constant_columns(rows: Sequence[Row], columns: Sequence[Column]) -> tuple[list[Column], list[str]]:
    """Return the columns whose values differ, and the others as texts such as `model tiny-gpt2`."""
    varying, constant = [], []
    for column in columns:
        values = [row.get(column.key) for row in rows]
        is_same = len(rows) > 1 and all(value == values[0] for value in values)
        if column.key in {"run", "grade"} or not is_same:
            varying.append(column)
        elif values[0] in (None, "", ()):
            continue
        elif column.kind in {"text", "count"}:
            constant.append(f"{column.title.lower()} {cell_text(values[0])}")
        else:
            varying.append(column)
    return varying, constant


_SIGNS: Mapping[str, Sign] = {**STATUSES, **GRADES}


def frame(rows: Sequence[Row], columns: Sequence[Column]) -> pd.DataFrame:
    """Return rows for display, indexed by run: grades and statuses with their symbols, scores in percent."""
    return pd.DataFrame(
        {column.key: _display(column, rows) for column in columns}, index=pd.Index([row.name for row in rows])
    )


def _display(column: Column, rows: Sequence[Row]) -> Any:
    values = [mark_of(row) if column.key == "grade" else row.get(column.key) for row in rows]
    if column.key in {"grade", "status"}:
        return [[label(_SIGNS, value)] if value else [] for value in values]
    if column.kind in {"line", "labels"}:
        return [list(value or ()) for value in values]
    if column.kind in {"time", "utc"}:
        return pd.to_datetime(pd.Series(values, dtype="object"), utc=True).to_numpy()
    if column.kind in {"percent", "progress"}:
        return [None if value is None else 100 * value for value in values]
    if column.kind == "text":
        return [None if value is None else cell_text(value) for value in values]
    return pd.Series([math.nan if value is None else value for value in values], dtype="float64").to_numpy()


def cell_text(value: object) -> str:
    """Return a value as one line without invisible characters."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return shorten(strip_invisible(str(value)).replace("\n", " "), LONGEST_CELL)


def as_csv(rows: Sequence[Row], columns: Sequence[Column]) -> bytes:
    """Return the whole values as CSV, in which no cell is a formula."""
    keys = [column.key for column in columns if column.kind != "line"]
    cells = ([row.get(key) for key in keys] for row in rows)
    return csv_text(
        keys, ([" ".join(map(str, value)) if isinstance(value, tuple) else value for value in row] for row in cells)
    ).encode("utf-8")


# Search, filters and order


@dataclass(frozen=True, kw_only=True)
class ListOptions:
    """Which runs are listed, and how.

    Attributes:
        search: Text of the search box.
        filters: Accepted values by column; empty accepts all.
        archived: Whether archived runs are listed.
        columns: Keys of the columns.
        sort: Column to sort by, or None for the newest first.
        descending: Whether the largest come first.
        group: Column whose values make groups, or None.
    """

    search: str = ""
    filters: Mapping[str, Sequence[str]] = field(default_factory=dict)
    archived: bool = False
    columns: tuple[str, ...] = ("run", *DEFAULT_COLUMNS)
    sort: str | None = None
    descending: bool = False
    group: str | None = None


def select(runs: RunList, options: ListOptions) -> tuple[list[Row], Sequence[str]]:
    """Return the runs that match search and filters, in order, and what in the search is not valid."""
    parsed = query.parse(options.search, QUERY_FIELDS, (*runs.settings, *runs.figures))
    rows = runs.rows if parsed.is_empty else [row for row in runs.rows if parsed.matches(row)]
    for key, values in options.filters.items():
        if values:
            rows = [
                row for row in rows if not set(values).isdisjoint(row.get(key) if key == "tag" else (row.get(key),))
            ]
    if not options.archived:
        rows = [row for row in rows if not row.summary.archived]
    return sort_rows(rows, options.sort, descending=options.descending), parsed.complaints


_RANK = {name: place for place, name in enumerate(GRADES)}


def sort_rows(rows: Sequence[Row], key: str | None, *, descending: bool = False) -> list[Row]:
    """Sort rows by a column; rows without a value come last in either direction."""
    if key is None:
        return list(rows)
    keyed = [(row, _sort_key(key, row.get(key))) for row in rows]
    present = sorted((pair for pair in keyed if pair[1]), key=lambda pair: pair[1] or (), reverse=descending)
    return [row for row, _ in present] + [row for row, value in keyed if not value]


def _sort_key(key: str, value: Any) -> tuple[int, float, str] | None:
    """Return a sort key: grades from best to worst, numbers before texts, texts without case; None without a value."""
    if key == "grade":
        return 0, _RANK.get(str(value), len(_RANK)), ""
    if isinstance(value, datetime):
        value = value.timestamp()
    if isinstance(value, int | float):
        return 0, float(value), ""
    text = ", ".join(map(str, value)) if isinstance(value, tuple) else str(value or "")
    return (1, 0.0, text.lower()) if text else None


# Changes since a list was shown


def outdated_runs(shown: Sequence[RunSummary], now: Sequence[RunSummary]) -> list[str]:
    """Return the names of finished runs whose evidence has changed or whose folder is gone."""
    after = {summary.path.name: summary for summary in now}

    def evidence(summary: RunSummary) -> object:
        return summary.grade, summary.problem_count, summary.documents, summary.score

    return [
        before.path.name
        for before in shown
        if before.status != "running"
        and ((found := after.get(before.path.name)) is None or evidence(found) != evidence(before))
    ]


def describe_news(shown: Sequence[RunSummary], now: Sequence[RunSummary]) -> str:
    """Describe what is new: `2 new runs and 1 finished run`; empty if nothing is."""
    before, after = ({summary.path.name: summary.status for summary in each} for each in (shown, now))
    new, gone = after.keys() - before.keys(), before.keys() - after.keys()
    ended = [name for name, status in before.items() if status == "running" and after.get(name, status) != "running"]
    changed = set(outdated_runs(shown, now)) - gone
    counts = ((new, "new run"), (ended, "finished run"), (changed, "changed run"), (gone, "deleted run"))
    texts = [quantity(len(names), noun) for names, noun in counts if names]
    return join_words(texts, last="and") if texts else ""


def describe_changes(summaries: Sequence[RunSummary]) -> list[str]:
    """Describe for each run which settings differ from the run it continues, else from the previous run, else defaults.

    The previous run is the next older one of the same model and mode. Missing settings have their default. The text is
    empty if a run states no settings.

    Args:
        summaries: Newest first.
    """
    by_id = {summary.run_id: summary for summary in summaries}
    latest: dict[tuple[str | None, str | None], RunSummary] = {}
    texts = []
    for summary in reversed(summaries):
        kind = (summary.model, summary.mode)
        other = by_id.get(summary.parent or "") or latest.get(kind)
        texts.append(_describe(summary.settings, other.settings if other is not None else None))
        if summary.settings:
            latest[kind] = summary
    return texts[::-1]


_NO_SETTINGS = frozenset({"name", "mode", "schema_version"})
_NO_DEFAULT = frozenset({"model.name", "model.weights", "data.dataset", "evaluation.eval_set"})
_MOST_CHANGES = 3


def _describe(settings: Mapping[str, object], other: Mapping[str, object] | None) -> str:
    if not settings:
        return ""
    parts = list(_changes(settings, other))
    if not parts:
        return "nothing" if other is not None else "defaults"
    more = f", {len(parts) - _MOST_CHANGES} more" if len(parts) > _MOST_CHANGES else ""
    return shorten(strip_invisible(", ".join(parts[:_MOST_CHANGES]) + more), 200)


def _changes(settings: Mapping[str, object], other: Mapping[str, object] | None) -> Iterator[str]:
    defaults = _defaults()
    for key in dict.fromkeys([*settings, *(other or ())]):
        if key in _NO_SETTINGS or (other is None and key in _NO_DEFAULT):
            continue
        default = defaults.get(key)
        own, theirs = settings.get(key, default), (other or {}).get(key, default)
        if own != theirs:
            name = "model" if key == "model.name" else key.rpartition(".")[2]
            yield f"{name} {as_yaml(own)}" if other is None else f"{name} {as_yaml(theirs)} → {as_yaml(own)}"


@cache
def _defaults() -> Mapping[str, object]:
    return {setting.dotted: setting.default for setting in form.fields()}


# Groups


def group_rows(rows: Sequence[Row], key: str) -> tuple[pd.DataFrame, list[Row]]:
    """Summarize runs by the values of a column, and return them grouped too.

    Scores and losses are only averaged over runs with the same evaluation set and objective, without contradictory
    runs, and without smoke runs if there are full ones. A run with several tags is in several groups.

    Returns:
        One line per value, evaluation set and objective, with the column `value` (None if it is missing), and the rows.
    """
    records = [
        {
            "value": value,
            "Evaluation set": row.summary.settings.get("evaluation.eval_set") or formats.NOTHING,
            "Objective": row.summary.settings.get("objective.kind") or "supervised",
            "row": row,
            "mode": row.summary.mode,
            "is_sound": row.summary.grade != "contradictory",
            "score": row.get("score"),
            "loss": row.summary.last_loss,
        }
        for row in rows
        for value in _group_values(row.get(key))
    ]
    table = pd.DataFrame(records)
    sizes = table["value"].value_counts(dropna=False)
    numbers = pd.to_numeric(table["value"], errors="coerce")
    is_number = bool((numbers.notna() | table["value"].isna()).all())
    order = numbers if is_number else -table["value"].map(sizes)
    table = table.assign(order=order, missing=table["value"].isna(), text=table["value"].fillna(""))
    table = table.sort_values(["missing", "order", "text"], kind="stable")
    groups = table.groupby(["missing", "order", "text", "Evaluation set", "Objective"], sort=False, dropna=False)
    lines = [_group_line(group) for _, group in groups]
    return pd.DataFrame(lines), list(dict.fromkeys(table["row"]))


def _group_values(value: Any) -> Sequence[str | None]:
    if isinstance(value, tuple):
        return [str(one) for one in value] or [None]
    if isinstance(value, bool):
        return ["true" if value else "false"]
    return [None] if value in (None, "") else [str(value)]


def _group_line(group: pd.DataFrame) -> dict[str, Any]:
    first, rows = group.iloc[0], list(group["row"])
    used = group[group["is_sound"]]
    is_full = used["mode"] == "full"
    used = used[is_full] if is_full.any() else used
    starts = [row.get("started") for row in rows if row.get("started")]
    line = {
        "value": first["value"],
        "Group": formats.NOTHING if first["value"] is None else cell_text(first["value"]),
        "Evaluation set": cell_text(first["Evaluation set"]),
        "Objective": cell_text(first["Objective"]),
        "Runs": len(rows),
        "Consistent": sum(row.summary.grade in {"verified", "consistent"} for row in rows),
        "Averaged": len(used),
    }
    line |= _statistics(used["score"], "Best score", "Mean score", "max", formats.percent)
    line |= _statistics(used["loss"], "Lowest last loss", "Mean last loss", "min", formats.number)
    return line | {"Newest": max(starts).astimezone(UTC) if starts else pd.NaT}


def _statistics(
    column: pd.Series, best_title: str, mean_title: str, best: str, write: Callable[[float], str]
) -> dict[str, str]:
    values = column.astype("float64").dropna()
    if values.empty:
        return dict.fromkeys((best_title, mean_title), formats.NOTHING)
    spread = f" ± {write(values.std())}" if len(values) > 1 else ""
    return {best_title: write(values.agg(best)), mean_title: write(values.mean()) + spread}
