"""Boxes to choose runs by their names; the address holds the names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from dashboard.shared.parts import markup
from dashboard.shared.session import state

SIDE_BY_SIDE = "Side by side"
"""Tab of the Compare page that compares runs in detail."""
MOST_SIDE_BY_SIDE = 20
LISTED = 200
"""Number of runs up to which all are listed."""
OFFERED = 60
"""Number of runs that are listed of more: each name costs the browser a millisecond per rerun."""
_TO_COMPARE = "runs to compare side by side"
_MENU_PIXELS = 520
_NAME_PIXELS, _NAME_PIXELS_ON_PHONES = 205, 150


def choose_runs(
    known: Mapping[str, object],
    *,
    most: int | None = None,
    label_visibility: Literal["visible", "collapsed"] = "visible",
    within: DeltaGenerator | None = None,
) -> list[str]:
    """Draw a box for several runs and return the chosen names.

    Args:
        known: Every run by its name, newest first.
        most: How many may be chosen.
        label_visibility: Whether the label of the box is visible.
        within: Where the box goes, or None for here. Names that no run has are always reported here.
    """
    multiselect = st.multiselect if within is None else partial(within.multiselect, width=_MENU_PIXELS)
    # Enter takes every match, so a match must contain what was typed.
    shared: Any = {"key": "runs", "bind": "query-params", "max_selections": most, "filter_mode": "contains"}
    asked = st.query_params.get_all("runs")  # The box removes names that it does not list.
    named = multiselect("Runs", **_offer(known), **shared, label_visibility=label_visibility)
    if missing := [name for name in (asked if len(known) <= LISTED else named) if name not in known]:
        _report_missing(missing)
    return [name for name in named if name in known]


def choose_run(known: Mapping[str, object]) -> str | None:
    """Draw a box for one run and return its name, or None until one is chosen."""
    named: str | None = st.selectbox("Choose a run", index=None, **_offer(known))
    if named is None or named in known:
        return named
    _report_missing([named])
    return None


def _offer(known: Mapping[str, object]) -> dict[str, Any]:
    """Return the options of a box: all runs, or the newest of many; any other name can be typed."""
    if len(known) <= LISTED:
        return {"options": list(known), "placeholder": "newest first"}
    hint = f"the newest {OFFERED} are listed; type the whole name of another"
    return {"options": list(known)[:OFFERED], "placeholder": hint, "accept_new_options": True}


def hold_side_by_side(names: Sequence[str]) -> None:
    """Compare these runs side by side; the callback of a button on the Compare page.

    Streamlit refuses to set a parameter of the address that a box is bound to, so this sets the box.
    """
    st.session_state["part"] = SIDE_BY_SIDE
    st.session_state["runs" if "runs" in st.session_state else _TO_COMPARE] = list(names)


def go_where_held() -> None:
    """Open the comparison that `hold_side_by_side` saved because the page had no box."""
    if names := st.session_state.pop(_TO_COMPARE, None):
        state.go(state.COMPARE, runs=names)


def name_pixels() -> int:
    """Return the width of a column of names; on a phone there must be room for other columns."""
    is_phone = "Mobi" in st.context.headers.get("User-Agent", "")
    return _NAME_PIXELS_ON_PHONES if is_phone else _NAME_PIXELS


def _report_missing(names: Sequence[str]) -> None:
    markup.note(f"There is no run {', '.join(names)} in {state.root()}.")
