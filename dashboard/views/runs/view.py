"""The runs page: every folder under the root with what it is worth; search, filter, group, choose, open, note."""

from __future__ import annotations

import time
from collections.abc import Sequence

import streamlit as st

from dashboard.shared.parts import launching, markup
from dashboard.shared.session import reading, state
from dashboard.shared.tables import runs_table
from dashboard.shared.tables.run_rows import Listing, Row
from dashboard.shared.words.grades import GRADES, label
from dashboard.views.runs.logic.look import Look, Slice, filter_runs, in_order, news, outdated_runs, page_of
from dashboard.views.runs.parts import actions, cards, keys
from dashboard.views.runs.parts.grid import chosen_runs, show_table
from dashboard.views.runs.parts.toolbar import toolbar
from evidence.index.summary import RunSummary
from schemas.formats import quantity

_VISIT = "address of the list"
_JUST_DRAWN_SECONDS = 1.0


def page() -> None:
    """Draw the page."""
    found = reading.summaries()
    if not found:
        _nothing_yet()
        _news(found)
        return
    listing = reading.listing(found)
    state.as_left(_VISIT)
    place = st.container()  # What the heading counts depends on the switches below it.
    look = toolbar(listing)
    state.leave(_VISIT)
    with place:
        _heading(listing, look)
        _news(found)
    kept, complaints = filter_runs(listing, look)
    for complaint in complaints:
        markup.note(complaint)
    rows = in_order(kept, look.sort, descending=look.descending)
    if not rows:
        _no_match(listing, look)
        return
    if look.group:
        # Groups need pandas, which the first page is drawn without.
        from dashboard.views.runs.parts import groups

        rows = groups.show(rows, look.group)
    _table(rows, look, listing)
    keys.listen(rows)


def _nothing_yet() -> None:
    markup.heading("Runs")
    markup.empty(
        f"No runs in {state.root()} yet",
        "A run is a folder that training writes as it goes: settings, metrics, log, predictions, and their hashes.",
        "A smoke run takes seconds on this machine and fills every page. It proves the pipeline, not the model.",
    )
    launching.smoke_button()


def _heading(listing: Listing, look: Look) -> None:
    signs = "".join(
        f'<span title="{markup.safe(GRADES[name].meaning)}">{markup.safe(label(GRADES, name))} <b>{number:,}</b></span>'
        for name in GRADES
        if (number := listing.grades.get(name))
    )
    said = f"{quantity(len(listing.rows), 'run')} in {markup.safe(state.root())}"
    if listing.archived and not look.archived:
        said += f" · {quantity(listing.archived, 'archived run')} not listed"
    markup.heading("Runs", lines=[said, f'<span class="tp-counts">{signs}</span>'])


def _no_match(listing: Listing, look: Look) -> None:
    lines = ["Remove a word from the search, or clear the filters."]
    if listing.archived and not look.archived:
        lines.append("Archived runs are not searched; Columns and order has the switch that lists them.")
    markup.empty("No run matches", *lines)


def _news(shown: Sequence[RunSummary]) -> None:
    """Look at the folders every few seconds, and report what is new; the list is drawn anew by a click alone.

    Anyone who reads a table, or writes a note on a run in it, would lose their place.
    """
    if reading.is_whole():
        st.fragment(run_every=reading.seconds_to_next_look())(_look_again)(shown, drawn_at=time.monotonic())


def _look_again(shown: Sequence[RunSummary], *, drawn_at: float) -> None:
    if time.monotonic() - drawn_at < _JUST_DRAWN_SECONDS:
        return  # With the page itself, which looks for itself once it stands.
    now = reading.look_at_runs()
    if said := news(shown, now):
        with st.container(horizontal=True, vertical_alignment="center", key="runs_news"):
            words = f"{said[:1].upper()}{said[1:]} since this list was drawn."
            markup.draw_changed(words) if outdated_runs(shown, now) else markup.note(words)
            if st.button("Show", icon=":material/refresh:", type="tertiary"):
                st.rerun()


@st.fragment
def _table(rows: Sequence[Row], look: Look, listing: Listing) -> None:
    """Draw the table and what can be done with its rows; a tick draws this part alone."""
    actions.follow([name for name in chosen_runs() if name in listing.by_name])
    columns = [runs_table.column_of(key, rows) for key in look.columns]
    same: list[str] = []
    if look.columns == ("run", *runs_table.FIRST_CHOICE):
        columns, same = runs_table.telling(rows, columns)
    above, place = st.container(), st.container()
    part = _page(rows)
    are_cards = cards.are_alone()
    with place:
        if not are_cards:
            show_table(part.rows, columns)
        cards.show(part.rows, have_boxes=are_cards)
    picked = [listing.by_name[name] for name in chosen_runs() if name in listing.by_name]
    with above:
        actions.show(picked, rows, same, total=len(listing.rows))
    actions.tools(picked, rows, columns)


def _page(rows: Sequence[Row]) -> Slice:
    """Draw the pages of a long list and return the one that is requested."""
    pages = page_of(rows, 1).pages
    if pages == 1:
        return page_of(rows, 1)
    with st.container(horizontal=True, vertical_alignment="center"):
        part = page_of(rows, st.pagination(pages, key="page", bind="query-params", width=48 * (min(pages, 7) + 2)))
        markup.note(f"{part.said(len(rows))}. Search and Sort by work on all, a click on a title on this page alone.")
    return part


page()
