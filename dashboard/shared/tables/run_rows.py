"""The runs as rows: each computed once, and kept until the run's summary changes.

A list of ten thousand runs is drawn again at every click, so nothing here is done twice for the same summary.
"""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache, cached_property
from pathlib import Path

from dashboard.shared.config import form
from dashboard.shared.config.settings import as_yaml
from dashboard.shared.tables.score_cell import Interval
from dashboard.shared.words.evidence import marks
from dashboard.shared.words.text import shorten
from evidence.bundle.secrets import strip_invisible
from evidence.index.summary import RunSummary
from schemas.reading import parse_time

_ASKABLE = re.compile(r"[A-Za-z][\w./@-]{0,99}")
"""Names of settings and figures that the search box can request; a stranger's file may hold any others."""


_YEARS = (1902, 2200)
_NO_WORDS = frozenset({"archived", "interval"})
"""Cells that a search for a word passes over: a "no" in each row would be found by every search for it."""


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """One run of the list.

    Attributes:
        summary: What it was made of.
        name: Name of the run's folder, which is how the address names it.
        shown_name: The folder's name without characters that cannot be seen.
        cells: Values by the keys of the fixed columns: numbers as numbers, words without symbols.
        text: Its words in lower case, for the search box.
    """

    summary: RunSummary
    name: str
    shown_name: str
    cells: dict[str, object]
    text: str

    def get(self, key: str) -> object:
        """Return a value by the key of a column: a fixed one, else a setting, else a figure; None for none."""
        if key in self.cells:
            return self.cells[key]
        settings = self.summary.settings
        return settings[key] if key in settings else self.summary.figures.get(key)


@dataclass(frozen=True, eq=False)
class Listing:
    """All rows of a root and what there is to choose among them.

    Attributes:
        rows: The runs in the order in which they were given.
        settings: Names of settings that some run has, sorted.
        figures: Names of figures that some run has and no fixed column shows, sorted.
    """

    rows: tuple[Row, ...]
    settings: tuple[str, ...]
    figures: tuple[str, ...]

    @cached_property
    def grades(self) -> Mapping[str, int]:
        """How many runs have each grade."""
        return Counter(row.summary.grade for row in self.rows)

    @cached_property
    def modes(self) -> list[str]:
        """Every mode that a run states, sorted."""
        return sorted({row.summary.mode for row in self.rows if row.summary.mode})

    @cached_property
    def statuses(self) -> list[str]:
        """Every status that a run is in, sorted."""
        return sorted({row.summary.status for row in self.rows if row.summary.status})

    @cached_property
    def tags(self) -> list[str]:
        """Every tag in use, sorted."""
        return sorted({tag for row in self.rows for tag in row.summary.tags})

    @cached_property
    def archived(self) -> int:
        """How many runs are archived."""
        return sum(row.summary.archived for row in self.rows)

    @cached_property
    def by_name(self) -> Mapping[str, Row]:
        """The rows by the names of their folders."""
        return {row.name: row for row in self.rows}


class RowCache:
    """Rows of one root, kept between reruns; safe to share between threads."""

    def __init__(self) -> None:
        self._known: dict[Path, Row] = {}
        self._last: Listing | None = None
        self._made_of: Sequence[RunSummary] | None = None
        self._busy = threading.Lock()

    def listing(self, summaries: Sequence[RunSummary]) -> Listing:
        """Return the rows of the summaries, in their order; only those that changed are made.

        Args:
            summaries: Not changed afterwards: the same sequence is taken for the same runs.
        """
        with self._busy:
            if summaries is self._made_of and self._last is not None:
                return self._last
            self._made_of = summaries
            rows = tuple(self._row(summary) for summary in summaries)
            last = self._last
            if last is not None and len(last.rows) == len(rows) and all(map(_is, last.rows, rows)):
                return last
            for row, said in zip(rows, describe_changes([row.summary for row in rows]), strict=True):
                row.cells["changed"] = said
            self._known = {row.summary.path: row for row in rows}
            self._last = Listing(rows, *_names(rows))
            return self._last

    def _row(self, summary: RunSummary) -> Row:
        known = self._known.get(summary.path)
        if known is not None and (known.summary is summary or known.summary == summary):
            return known
        return row_of(summary)


def row_of(summary: RunSummary) -> Row:
    """Return the row of a run."""
    cells = cells_of(summary)
    words = [value for key, value in cells.items() if isinstance(value, str) and key not in _NO_WORDS]
    text = "\n".join([*words, *summary.tags]).lower()
    name = summary.path.name
    return Row(summary, name, strip_invisible(name), cells, text)


def cells_of(summary: RunSummary) -> dict[str, object]:
    """Return a run's values by the keys of the fixed columns."""
    started = _bearable(parse_time(summary.started_at or ""))
    return {
        "run": summary.path.name,
        "grade": summary.grade,
        "evidence": marks(summary.documents),
        "changed": None,  # It depends on the runs beside it, so the listing states it.
        "repeated": summary.coverage or None,
        "status": summary.status,
        "mode": summary.mode,
        "model": summary.model,
        "method": summary.method,
        "device": summary.device,
        "steps": summary.steps_done,
        "planned": summary.steps_planned,
        "tokens": summary.tokens_seen,
        # A curve of a run that contradicts itself would look like any other.
        "curve": () if summary.grade == "contradictory" else summary.loss_points,
        "loss": summary.last_loss,
        "score": summary.score,
        "interval": _interval(summary),
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


def _interval(summary: RunSummary) -> Interval | None:
    """Return the score as its cell shows it; None without one."""
    if summary.score is None:
        return None
    return Interval(
        score=summary.score,
        low=summary.score_low,
        high=summary.score_high,
        untrained=summary.baseline_score,
        is_sound=summary.grade != "contradictory",
    )


def _bearable(at: datetime | None) -> datetime | None:
    """Return a time that every calendar on the way to the screen can hold; a stranger may state the year 1."""
    return at if at is not None and _YEARS[0] <= at.year <= _YEARS[1] else None


def _is(one: Row, other: Row) -> bool:
    return one is other


def _names(rows: Iterable[Row]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    settings: set[str] = set()
    figures: set[str] = set()
    fixed: set[str] = set()
    for row in rows:
        settings.update(row.summary.settings)
        figures.update(row.summary.figures)
        fixed.update(row.cells)
    settings -= fixed
    return _askable(settings), _askable(figures - fixed - settings)


def _askable(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(name for name in names if _ASKABLE.fullmatch(name)))


_NOT_CHOSEN = frozenset({"name", "mode", "schema_version"})
_IDENTITY = frozenset({"model.name", "model.weights", "data.dataset", "evaluation.eval_set"})
"""Settings that no default could hold."""
_MOST, _LONGEST = 3, 200


def describe_changes(found: Sequence[RunSummary]) -> list[str]:
    """Return for each run what differs from the run that it continues, else from the one before, else from the default.

    The one before is the next older run of the same model and mode. Empty: the run states no settings.

    Args:
        found: Newest first.
    """
    by_id = {summary.run_id: summary for summary in found}
    before: dict[tuple[str | None, str | None], RunSummary] = {}
    said = []
    for summary in reversed(found):
        kind = (summary.model, summary.mode)
        other = by_id.get(summary.parent or "") or before.get(kind)
        said.append(_describe(summary.settings, other.settings if other is not None else None))
        if summary.settings:
            before[kind] = summary
    return said[::-1]


def _describe(settings: Mapping[str, object], other: Mapping[str, object] | None) -> str:
    if not settings:
        return ""
    if settings == other:
        return "nothing"
    parts = list(_parts(settings, _defaults() if other is None else other, is_default=other is None))
    if not parts:
        return "nothing" if other is not None else "all as by default"
    more = f", {len(parts) - _MOST} more" if len(parts) > _MOST else ""
    return shorten(strip_invisible(", ".join(parts[:_MOST]) + more), _LONGEST)


def _parts(settings: Mapping[str, object], other: Mapping[str, object], *, is_default: bool) -> Iterator[str]:
    for key, value in settings.items():
        if key in _NOT_CHOSEN or other.get(key) == value or (is_default and (key in _IDENTITY or key not in other)):
            continue
        name = "model" if key == "model.name" else key.rpartition(".")[2]
        yield f"{name} {as_yaml(value)}" if is_default else f"{name} {as_yaml(other.get(key))} → {as_yaml(value)}"


@cache
def _defaults() -> Mapping[str, object]:
    return {field.dotted: field.default for field in form.fields()}
