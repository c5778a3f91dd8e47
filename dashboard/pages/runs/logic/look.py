"""What a reader asks of the list of runs, and the runs that are left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dashboard.shared.tables import query
from dashboard.shared.tables.run_rows import Listing, Row
from dashboard.shared.tables.runs_table import FIRST_CHOICE, QUERY_FIELDS

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


def filtered(listing: Listing, look: Look) -> tuple[list[Row], Sequence[str]]:
    """Return the runs that search and filters leave, and what in the search was not understood."""
    asked = query.parse(look.search, QUERY_FIELDS, (*listing.settings, *listing.figures))
    kept = list(listing.rows) if asked.is_empty else [row for row in listing.rows if asked.matches(row)]
    for key, values in look.filters.items():
        if wanted := set(values):
            kept = [row for row in kept if not wanted.isdisjoint(_values(row, key))]
    if listing.archived and not look.archived:
        kept = [row for row in kept if not row.summary.archived]
    return kept, asked.complaints


def _values(row: Row, key: str) -> Sequence[object]:
    return row.summary.tags if key == TAG else (row.cells[key],)
