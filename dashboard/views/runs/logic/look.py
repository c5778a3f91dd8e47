"""A reader's search and filters in the list of runs, the runs that are left, and what became of the list since."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from math import ceil

from dashboard.shared.tables import query
from dashboard.shared.tables.run_rows import Listing, Row
from dashboard.shared.tables.runs_table import FIRST_CHOICE, QUERY_FIELDS
from dashboard.shared.words.grades import GRADES
from evidence.index.summary import RunSummary
from schemas.formats import join_words, quantity

TAG = "tag"


@dataclass(frozen=True, kw_only=True)
class Look:
    """Which runs are listed, and how.

    Attributes:
        search: What stands in the search box.
        filters: Values that are let through, by the key of a column; a column without any lets all through.
        archived: Whether archived runs are listed too.
        columns: Keys of the columns, the run's name first.
        sort: Key of the column that it is sorted by. None: newest first.
        descending: Whether the largest come first.
        group: Key of the column whose values make groups. None: no groups.
    """

    search: str = ""
    filters: Mapping[str, Sequence[str]] = field(default_factory=dict)
    archived: bool = False
    columns: tuple[str, ...] = ("run", *FIRST_CHOICE)
    sort: str | None = None
    descending: bool = False
    group: str | None = None


def filter_runs(listing: Listing, look: Look) -> tuple[list[Row], Sequence[str]]:
    """Return the runs that search and filters leave, and what in the search was not understood."""
    asked = query.parse(look.search, QUERY_FIELDS, (*listing.settings, *listing.figures))
    kept = list(listing.rows) if asked.is_empty else [row for row in listing.rows if asked.matches(row)]
    for key, values in look.filters.items():
        if wanted := set(values):
            kept = [row for row in kept if not wanted.isdisjoint(row.summary.tags if key == TAG else (row.cells[key],))]
    if listing.archived and not look.archived:
        kept = [row for row in kept if not row.summary.archived]
    return kept, asked.complaints


def outdated_runs(shown: Sequence[RunSummary], now: Sequence[RunSummary]) -> list[str]:
    """Return the names of runs that ended before, and whose evidence changed since or whose folder is gone."""
    after = {summary.path.name: summary for summary in now}
    return [
        before.path.name
        for before in shown
        if before.status != "running"
        and ((found := after.get(before.path.name)) is None or _evidence(found) != _evidence(before))
    ]


def _evidence(summary: RunSummary) -> object:
    return summary.grade, summary.problem_count, summary.documents, summary.score


def news(shown: Sequence[RunSummary], now: Sequence[RunSummary]) -> str:
    """Return what is new in a few words, `2 new runs and 1 run that ended`; empty for nothing."""
    before, after = ({summary.path.name: summary.status for summary in each} for each in (shown, now))
    came, went = after.keys() - before.keys(), before.keys() - after.keys()
    ended = [name for name, status in before.items() if status == "running" and after.get(name, status) != "running"]
    changed = set(outdated_runs(shown, now)) - went
    said = [quantity(len(came), "new run")] if came else []
    said += [f"{quantity(len(ended), 'run')} that ended"] if ended else []
    said += [f"{quantity(len(changed), 'run')} whose evidence changed"] if changed else []
    said += [f"{quantity(len(went), 'run')} whose folder is gone"] if went else []
    return join_words(said, last="and") if said else ""


PAGE_ROWS = 2000
"""Rows that are sent to the browser at once, where a click on a title sorts them; here all rows are sorted."""

_RANK = {name: place for place, name in enumerate(GRADES)}


def in_order(rows: Sequence[Row], key: str | None, *, descending: bool = False) -> list[Row]:
    """Return the rows sorted by a column; rows without a value come last in either direction, equal ones stay put.

    Numbers come before words, grades from the best to the worst, words without regard to case.
    """
    if key is None:
        return list(rows)
    keyed = [(row, sort_value(key, row.get(key))) for row in rows]
    stated = [(row, value) for row, value in keyed if value is not None]
    stated.sort(key=lambda pair: pair[1], reverse=descending)
    return [row for row, _ in stated] + [row for row, value in keyed if value is None]


def sort_value(key: str, value: object) -> tuple[int, float, str] | None:
    """Return what a value is sorted by; None for no value."""
    if key == "grade":
        return (0, _RANK.get(str(value), len(_RANK)), "")
    if isinstance(value, bool):
        return (0, float(value), "")
    if isinstance(value, int | float):
        return (0, float(value), "")
    if isinstance(value, datetime):
        return (0, value.timestamp(), "")
    if isinstance(value, tuple):
        value = ", ".join(map(str, value))
    return (1, 0.0, str(value).lower()) if value not in (None, "") else None


@dataclass(frozen=True, kw_only=True)
class Slice:
    """One page of a list: which page of how many, and its rows."""

    page: int
    pages: int
    first: int
    rows: tuple[Row, ...]

    def said(self, total: int) -> str:
        """Return which rows these are: `2,001–4,000 of 5,000`."""
        return f"{self.first + 1:,}–{self.first + len(self.rows):,} of {total:,}"


def page_of(rows: Sequence[Row], page: int, size: int = PAGE_ROWS) -> Slice:
    """Return a page of the rows, counted from 1; beyond the last one, the last."""
    pages = max(1, ceil(len(rows) / size))
    page = min(max(1, page), pages)
    first = (page - 1) * size
    return Slice(page=page, pages=pages, first=first, rows=tuple(rows[first : first + size]))
