"""Rows in order and in pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from math import ceil

from dashboard.shared.tables.run_rows import Row
from dashboard.shared.words.grades import GRADES

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
