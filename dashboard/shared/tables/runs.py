"""The list of runs as a DataFrame: search, sort, group, display and CSV."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from dashboard.shared import form
from dashboard.shared.form import format_yaml
from dashboard.shared.words import GRADES, STATUSES, csv_text, label, marks, shorten
from evidence.bundle.secrets import strip_invisible
from evidence.compare.settings import setting_rank
from evidence.index.summary import RunSummary
from schemas import formats
from schemas.formats import join_words
from schemas.reading import parse_time

PAGE_ROWS = 2000  # number of rows per page of the list; `st.dataframe(lazy=True)` does not support selections
MAX_CELL = 300  # maximum length of a text in a cell; the Run page and the CSV show the whole text
GROUP_FIELDS = ("grade", "status", "mode", "model", "device", "method", "tag")
"""Columns by which runs can be grouped; settings are others."""
_NAME = re.compile(r"[A-Za-z][\w./@-]{0,99}")
"""Names of settings and figures that can be searched; an invalid file may contain any others."""


def _cells(run: RunSummary, changed: str, reference: str | None) -> dict[str, object]:
    """Return the values of a run by field."""
    is_sound = run.grade != "contradictory"
    has_interval = is_sound and run.score_low is not None
    return {
        "run": run.path.name,
        "grade": run.grade,
        "evidence": marks(run.documents),
        "changed": changed,
        "reference": reference,
        "score": run.score if is_sound else None,
        "interval": formats.percent_range(run.score_low, run.score_high) if has_interval else None,
        "loss": run.last_loss,
        "curve": run.loss_points if is_sound else (),
        "started": parse_time(run.started_at or ""),
        "minutes": run.duration_seconds / 60 if run.duration_seconds is not None else None,
        "tag": run.tags,
        "mode": run.mode,
        "model": run.model,
        "device": run.device,
        "steps": run.steps_done,
        "tokens": run.tokens_seen,
        "repeated": run.coverage or None,
        "method": run.method,
        "problems": run.problem_count,
        "status": run.status,
        "note": run.note,
        "planned": run.steps_planned,
        "memory": run.peak_memory.as_text() if run.peak_memory else None,
        "baseline": run.baseline_score,
        "problem": run.first_problem.what if run.first_problem else None,
        "archived": "yes" if run.archived else "no",
    }


FIELDS = tuple(_cells(RunSummary(path=Path(), run_id="", grade="not a run", reasons=()), "", None))
QUERY_FIELDS = tuple(key for key in FIELDS if key not in {"interval", "curve"})


class RunTable:
    """Runs, newest first, as a DataFrame.

    `frame` has a row per run and a column per field, None if a value is missing. `settings` and `figures` are the names
    that can be searched.
    """

    def __init__(self, summaries: Sequence[RunSummary]) -> None:
        self.summaries = summaries
        self.by_name = {run.path.name: run for run in summaries}
        self._places = {name: place for place, name in enumerate(self.by_name)}
        cells = [_cells(run, *change) for run, change in zip(summaries, describe_changes(summaries), strict=True)]
        self.frame = pd.DataFrame({key: _column([row[key] for row in cells]) for key in FIELDS})
        settings = {name for run in summaries for name in run.settings} - set(FIELDS)
        figures = {name for run in summaries for name in run.figures} - set(FIELDS) - settings
        self.settings = sorted(filter(_NAME.fullmatch, settings))
        self.figures = sorted(filter(_NAME.fullmatch, figures))

    @cached_property
    def text(self) -> pd.Series:
        """The words of each run in lower case."""
        rows = self.frame.drop(columns=["archived", "interval", "curve"]).itertuples(index=False)
        texts = ([" ".join(cell) if isinstance(cell, tuple) else cell for cell in row] for row in rows)
        return pd.Series([" ".join(one for one in row if isinstance(one, str)).lower() for row in texts], dtype=object)

    def column(self, key: str) -> pd.Series:
        """Return a field, setting or figure for each run, None if it is missing."""
        if key in self.frame:
            return self.frame[key]
        return _column([run.settings.get(key, run.figures.get(key)) for run in self.summaries])

    def values(self, key: str, names: Sequence[str]) -> pd.Series:
        """Return a field, setting or figure for some runs, indexed by their positions."""
        return self.column(key).iloc[[self._places[name] for name in names]]

    def choices(self, key: str) -> list[str]:
        """Return the values of a field, sorted."""
        return sorted(value for value in self.frame[key].explode().unique() if not is_missing(value))

    def search(
        self, text: str, filters: Mapping[str, Sequence[str]] | None = None, *, archived: bool = False
    ) -> tuple[list[str], Sequence[str]]:
        """Return the names of the runs that match, and what in the search is not valid.

        `filters` are accepted values by field, none for all. Archived runs match if `archived` or the search says so.
        """
        parsed = parse_search(text, QUERY_FIELDS, (*self.settings, *self.figures))
        found = parsed.matches(self.text, self.column)
        for key, values in (filters or {}).items():
            if values:
                found &= self.frame[key].explode().isin(values).groupby(level=0, sort=False).any()
        if not archived and "archived" not in {condition.field for condition in parsed.conditions}:
            found &= self.frame["archived"] == "no"
        return [name for name, is_match in zip(self._places, found, strict=True) if is_match], parsed.complaints

    def sort(self, names: Sequence[str], key: str | None, *, descending: bool = False) -> list[str]:
        """Sort runs by a field: numbers before texts, grades from best to worst, runs without a value last."""
        if key is None:
            return list(names)
        values = self.values(key, names).reset_index(drop=True)
        values = values.map({grade: rank for rank, grade in enumerate(GRADES)}.get) if key == "grade" else values
        texts = values.map(lambda one: ", ".join(map(str, one)) if isinstance(one, tuple) else str(one).lower())
        numbers = pd.to_numeric(values.mask(values.map(lambda one: isinstance(one, tuple))), errors="coerce")
        keys = pd.DataFrame({"missing": values.map(is_missing), "number": numbers, "text": texts})
        places = keys.sort_values(["missing", "number", "text"], ascending=[True, not descending, not descending]).index
        return [names[place] for place in places]

    def display(self, names: Sequence[str], keys: Sequence[str]) -> pd.DataFrame:
        """Return runs for `st.dataframe`: grades and statuses with symbols, scores in percent, texts as one line."""
        return pd.DataFrame({key: self._display(key, names) for key in keys}).reset_index(drop=True)

    def _display(self, key: str, names: Sequence[str]) -> pd.Series:
        values = self.values(key, names)
        if key in {"grade", "status"}:
            signs = {**STATUSES, **GRADES}
            words = [shown_grade(self.by_name[name]) for name in names] if key == "grade" else list(values)
            return pd.Series([[label(signs, word)] if word else [] for word in words], index=values.index)
        if key == "started":
            return pd.to_datetime(values, utc=True)
        if key == "minutes":  # in whole seconds, at least one
            seconds = (60 * pd.to_numeric(values)).round().clip(lower=1)
            return pd.to_timedelta(seconds, unit="s", errors="coerce")
        if key in {"evidence", "curve", "tag"}:
            return values.map(list)
        if is_number(values):
            return pd.to_numeric(values) * (100 if key in {"score", "baseline"} else 1)
        return values.map(lambda value: None if is_missing(value) else cell_text(value))

    def csv(self, names: Sequence[str], keys: Sequence[str]) -> str:
        """Return whole values as CSV, in which no cell is a formula."""
        return csv_text(pd.DataFrame({key: self.values(key, names) for key in keys if key != "curve"}, dtype=object))


def _column(values: Sequence[object]) -> pd.Series:
    return pd.Series([_without_surrogates(value) for value in values], dtype=object)


def _without_surrogates(value: object) -> object:
    """Replace lone surrogates in strings: a hostile file may contain them, and they cannot be encoded."""
    if isinstance(value, tuple):
        return tuple(_without_surrogates(one) for one in value)
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


def is_number(values: pd.Series) -> bool:
    """Return whether a column has numbers, and nothing else."""
    present = [value for value in values if not is_missing(value)]
    return bool(present) and all(isinstance(one, int | float) and not isinstance(one, bool) for one in present)


def shown_grade(run: RunSummary) -> str:
    """Return the grade of a run, or how it ended if it did not succeed and the grade does not say more."""
    is_unfinished = run.status in STATUSES and run.status != "succeeded"
    says_less = run.grade in {"partial", "measured", "template"}
    return run.status if run.status and is_unfinished and says_less else run.grade


def cell_text(value: object) -> str:
    """Return a value as one line without invisible characters."""
    text = format_yaml(value) if isinstance(value, bool) else str(value)
    return shorten(strip_invisible(text).replace("\n", " "), MAX_CELL)


_NO_SETTINGS = frozenset({"name", "mode", "schema_version"})
_NO_DEFAULT = frozenset({"model.name", "model.weights", "data.dataset", "evaluation.eval_set"})
MAX_CHANGED = 48  # characters that fit the column
_MAX_VALUE = 16


def describe_changes(summaries: Sequence[RunSummary]) -> list[tuple[str, str | None]]:
    """Describe for each run which settings differ from another run or the defaults, and name that reference.

    The reference is the run that it continues, else the previous run of the same model and mode, else the defaults. The
    summaries are in order, newest first. Missing settings have their default. A run without settings has no reference.
    """
    defaults = {setting.dotted: setting.default for setting in form.fields()}
    by_id = {run.run_id: run for run in summaries}
    latest: dict[tuple[str | None, str | None], RunSummary] = {}
    texts = []
    for run in reversed(summaries):
        other = by_id.get(run.parent or "") or latest.get((run.model, run.mode))
        text = _describe(run.settings, other.settings if other is not None else None, defaults)
        texts.append((text, (other.path.name if other is not None else "defaults") if text else None))
        if run.settings:
            latest[run.model, run.mode] = run
    return texts[::-1]


def _describe(
    settings: Mapping[str, object], other: Mapping[str, object] | None, defaults: Mapping[str, object]
) -> str:
    if not settings:
        return ""
    parts = []
    for key in sorted(dict.fromkeys([*settings, *(other or ())]), key=setting_rank):
        own, theirs = (each.get(key, defaults.get(key)) for each in (settings, other or {}))
        if own != theirs and key not in _NO_SETTINGS and (other is not None or key not in _NO_DEFAULT):
            group, _, name = key.rpartition(".")
            values = [own] if other is None else [theirs, own]
            shown = " → ".join(shorten(strip_invisible(format_yaml(value)), _MAX_VALUE) for value in values)
            parts.append(f"{group if name in {'name', 'kind'} else name} {shown}")
    text = ", ".join(parts) or "nothing"
    for count in reversed(range(1, len(parts))):
        if len(text) <= MAX_CHANGED:
            break
        text = f"{', '.join(parts[:count])} +{len(parts) - count} more"
    return shorten(text, 2 * MAX_CHANGED)


def group_runs(table: RunTable, names: Sequence[str], key: str) -> tuple[pd.DataFrame, list[str]]:
    """Summarize runs by the values of a field, and return the runs in the order of the groups.

    Scores and losses are only averaged over runs with the same evaluation set and objective, without contradictory
    runs, and without smoke runs if there are full ones. A run with several tags is in several groups.

    Returns:
        One line per value, evaluation set and objective; and the names.
    """
    eval_sets, objectives = (table.values(one, names) for one in ("evaluation.eval_set", "objective.kind"))
    is_sound = table.values("grade", names) != "contradictory"
    runs = pd.DataFrame(
        {
            "Group": table.values(key, names),
            "Evaluation set": eval_sets.map(lambda one: cell_text(one or formats.NOTHING)),
            "Objective": objectives.map(lambda one: cell_text(one or "supervised")),
            "sound": is_sound,
            "full": is_sound & (table.values("mode", names) == "full"),
            "consistent": table.values("grade", names).isin(["verified", "consistent"]),
            "score": 100 * pd.to_numeric(table.values("score", names)),
            "loss": pd.to_numeric(table.values("loss", names)),
            "started": pd.to_datetime(table.values("started", names), utc=True),
            "name": range(len(names)),
        }
    ).explode("Group", ignore_index=True)
    runs["Group"] = [formats.NOTHING if is_missing(one) else cell_text(format_yaml(one)) for one in runs["Group"]]
    order = pd.to_numeric(runs["Group"], errors="coerce")
    if (order.isna() & (runs["Group"] != formats.NOTHING)).any():
        order = -runs.groupby("Group")["name"].transform("size")
    runs = runs.assign(order=order).sort_values(["order", "Group"], kind="stable")
    keys = ["Group", "Evaluation set", "Objective"]
    runs["counts"] = runs["sound"] & (runs["full"] | ~runs.groupby(keys)["full"].transform("any"))
    runs[["score", "loss"]] = runs[["score", "loss"]].where(runs["counts"])
    lines = runs.groupby(keys, sort=False).agg(
        **{
            "Runs": ("name", "size"),
            "Consistent": ("consistent", "sum"),
            "Averaged": ("counts", "sum"),
            "Best score": ("score", "max"),
            "Mean score": ("score", "mean"),
            "± score": ("score", "std"),
            "Lowest last loss": ("loss", "min"),
            "Mean last loss": ("loss", "mean"),
            "± loss": ("loss", "std"),
            "Newest": ("started", "max"),
        }
    )
    return lines.reset_index(), [names[place] for place in dict.fromkeys(runs["name"])]


_PART = re.compile(
    r"(?P<not>-?)(?P<field>[A-Za-z_][\w./@-]*)(?P<sign><=|>=|<|>|:|=)(?P<value>\"[^\"]*\"?|[^\s\"]+)"
    r"|\"(?P<quoted>[^\"]*)\"?"
    r"|(?P<word>\S+)"
)
_COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class Condition(NamedTuple):
    """Test of one field."""

    field: str
    test: Callable[[object], bool]
    is_negated: bool


class Query(NamedTuple):
    """A parsed search, with a message for each part that is not valid."""

    words: Sequence[str]
    conditions: Sequence[Condition]
    complaints: Sequence[str]

    def matches(self, text: pd.Series[str], column: Callable[[str], pd.Series]) -> pd.Series[bool]:
        """Return which runs have every word (`text`: words in lower case) and meet every condition on a `column`."""
        found = text.notna()
        for word in self.words:
            found &= text.str.contains(word, regex=False)
        for one in self.conditions:
            found &= column(one.field).map(one.test).astype(bool) != one.is_negated
        return found


def parse_search(text: str, fields: Collection[str], others: Collection[str] = ()) -> Query:
    """Parse a search; `others` are the names of settings and figures."""
    words: list[str] = []
    conditions: list[Condition] = []
    complaints: list[str] = []
    for part in _PART.finditer(text):
        if part["field"] is None:
            words.append((part["quoted"] or part["word"] or "").lower())
            continue
        field, sign, value = part["field"], part["sign"], part["value"].strip('"')
        if field not in fields and field not in others:
            near = get_close_matches(field, [*fields, *others], n=3)
            known = f"the fields are {', '.join(sorted(fields))}" + (", settings and figures" if others else "")
            complaints.append(f"Unknown field {field}; {f'did you mean {join_words(near)}?' if near else f'{known}.'}")
        elif sign in _COMPARISONS and _number(value) is None and _date(value) is None:
            complaints.append(f"{field}{sign} needs a number or a date, not {value}.")
        else:
            values = [value] if part["value"].startswith('"') else value.split(",")
            test = _comparison(_COMPARISONS[sign], value) if sign in _COMPARISONS else _equality(sign, values)
            conditions.append(Condition(field, test, part["not"] == "-"))
    return Query(list(filter(None, words)), conditions, complaints)


def is_missing(value: object) -> bool:
    """Return whether a value is None, NaN, an empty text or an empty tuple."""
    return value is None or value is pd.NaT or value != value or (isinstance(value, str | tuple) and not value)


def _equality(sign: str, values: Sequence[str]) -> Callable[[object], bool]:
    """Return a test for one of several values; a missing value only meets `=""`."""
    wanted = [value.strip().lower() for value in values]
    numbers = {number for value in wanted if (number := _number(value)) is not None}

    def test(found: object) -> bool:
        if is_missing(found):
            return sign == "=" and wanted == [""]
        if isinstance(found, int | float) and not isinstance(found, bool):
            return float(found) in numbers
        texts = [
            (one.astimezone(UTC).isoformat(" ") if isinstance(one, datetime) else str(one)).lower()
            for one in (found if isinstance(found, tuple) else (found,))
        ]
        return any(value == text if sign == "=" else value in text for value in wanted for text in texts)

    return test


def _comparison(compare: Callable[[float, float], bool], value: str) -> Callable[[object], bool]:
    number, date = _number(value), _date(value)

    def test(found: object) -> bool:
        if is_missing(found) or isinstance(found, bool):
            return False
        if isinstance(found, datetime):
            return date is not None and compare(found.timestamp(), date.timestamp())
        return number is not None and isinstance(found, int | float) and compare(float(found), number)

    return test


def _number(text: str) -> float | None:
    try:
        return float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        return None


def _date(text: str) -> datetime | None:
    try:
        date = datetime.fromisoformat(text)
    except ValueError:
        return None
    return date if date.tzinfo else date.replace(tzinfo=UTC)
