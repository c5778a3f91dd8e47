"""A reader's search and filters in the list of runs, the runs that are left, and what became of the list since."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dashboard.shared.tables import query
from dashboard.shared.tables.run_rows import Listing, Row
from dashboard.shared.tables.runs_table import FIRST_CHOICE, QUERY_FIELDS
from evidence.index.runs import RunSummary
from schemas.problems.words import listed, quantity

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
            kept = [row for row in kept if not wanted.isdisjoint(_values(row, key))]
    if listing.archived and not look.archived:
        kept = [row for row in kept if not row.summary.archived]
    return kept, asked.complaints


def _values(row: Row, key: str) -> Sequence[object]:
    return row.summary.tags if key == TAG else (row.cells[key],)


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
    return listed(said, last="and") if said else ""
