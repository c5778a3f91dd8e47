"""Search, filters and the look of the list of runs; each value stands in the address under its own name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import streamlit as st

from dashboard.shared.tables.run_rows import Listing
from dashboard.shared.tables.runs_table import BY_KEY, FIRST_CHOICE, GROUP_FIELDS, QUERY_FIELDS, SORT_FIELDS
from dashboard.shared.words.grades import GRADES
from dashboard.shared.words.text import findable
from dashboard.views.runs.logic.look import TAG, Look
from dashboard.views.runs.parts import saved_views

_HELP = f"""Words must occur somewhere in the row. All conditions must be met:

- `status:failed` the field has this word; `-status:failed` it does not
- `grade:verified,consistent` it has one of them
- `model="my model"` it is exactly this; `model=""` the run does not say
- `loss<1.2`, `steps>=100`; `started>2026-11-01` in UTC
- `score>60%` or `score>0.6`: a score is 0 to 1, and its column shows percent
- `optimizer.learning_rate<0.001` any setting or figure of a run

Fields: {", ".join(QUERY_FIELDS)}.
"""


def toolbar(listing: Listing) -> Look:
    """Draw search, filters, saved views and the look; return the look."""
    is_set = saved_views.apply_chosen(listing)
    with st.container(horizontal=True, vertical_alignment="bottom", key="runs_toolbar"):
        search = st.text_input(
            "Search",
            key="q",
            bind="query-params",
            placeholder="gemma grade:consistent loss<1.2",
            icon=":material/search:",
            help=_HELP,
        )
        filters = _filters(listing)
        look = _look(listing, is_set=is_set)
        saved_views.popover()
    return replace(look, search=search or "", filters=filters)


def _filters(listing: Listing) -> dict[str, list[str]]:
    """Draw the button behind which the filters are, state on it how many of them are set, and return their values."""
    filters: dict[str, Sequence[str]] = {
        "grade": [name for name in GRADES if name in listing.grades],
        "mode": listing.modes,
        "status": listing.statuses,
    }
    if listing.tags or st.session_state.get(TAG):
        filters[TAG] = listing.tags
    count = sum(_is_set(key, options) for key, options in filters.items())
    # Behind a button the browser loads their boxes when they are requested, and the table stands there sooner.
    with st.popover(f"Filters: {count}" if count else "Filters", icon=":material/filter_list:", key="runs_filters"):
        return {key: _choice(key.capitalize(), key, options) for key, options in filters.items()}


def _is_set(key: str, options: Sequence[str]) -> bool:
    """Return whether a filter is set; before its box is drawn for the first time the address states it."""
    if key in st.session_state:
        return bool(st.session_state[key])
    return not set(options).isdisjoint(st.query_params.get_all(key))


def _look(listing: Listing, *, is_set: bool) -> Look:
    """Draw the button behind which columns, order and groups are, and return their values."""
    named = (*listing.settings, *listing.figures)
    with st.popover("Columns and order", icon=":material/view_column:", key="runs_look"):
        columns = st.multiselect(
            "Columns, in this order",
            _with_chosen([key for key in BY_KEY if key != "run"] + list(named), st.session_state.get("columns", ())),
            default=None if is_set else list(FIRST_CHOICE),
            key="columns",
            bind="query-params",
            help="Type to search: any setting (optimizer.learning_rate) or figure (last.grad_norm) of a run.",
        )
        sort = _one("Sort by", "sort", [*SORT_FIELDS, *findable(named)], "newest first")
        order = st.segmented_control(
            "Order",
            ["ascending", "descending"],
            default=None if is_set else "ascending",
            key="order",
            bind="query-params",
            required=True,
            disabled=sort is None,
            label_visibility="collapsed",
        )
        group = _one("Group by", "group", [*GROUP_FIELDS, *findable(listing.settings)], "no groups")
        archived = st.toggle(
            "Archived runs too",
            key="archived",
            bind="query-params",
            help="Archived runs are out of this list only. Nothing of them is deleted.",
        )
    shown = ("run", *columns)
    return Look(archived=archived, columns=shown, sort=sort, descending=order == "descending", group=group)


def _one(label: str, key: str, options: Sequence[str], nothing: str) -> str | None:
    chosen = st.session_state.get(key)
    return st.selectbox(
        label,
        _with_chosen(options, [chosen] if chosen else []),
        index=None,
        filter_mode="contains",
        placeholder=nothing,
        key=key,
        bind="query-params",
    )


def _choice(label: str, key: str, options: Sequence[str]) -> list[str]:
    return st.multiselect(
        label, _with_chosen(options, st.session_state.get(key, ())), key=key, bind="query-params", placeholder="all"
    )


def _with_chosen(options: Iterable[str], chosen: Iterable[str]) -> list[str]:
    """Return the options and what is chosen already, which may have gone from the list meanwhile."""
    return list(dict.fromkeys([*options, *chosen]))
