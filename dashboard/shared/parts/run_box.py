"""The box in which runs are chosen by their names; the address holds them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, Literal

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from dashboard.shared.parts import markup
from dashboard.shared.session import state

SIDE_BY_SIDE = "Side by side"
"""Part of the page of comparison that goes into detail."""
MOST_SIDE_BY_SIDE = 20
"""Runs compared in detail; pictures take any number."""
LISTED = 200
"""Runs that are all listed."""
OFFERED = 60
"""Newest runs that are listed of more: each name costs the browser a millisecond each time that the page is drawn."""
_HELD = "runs to hold side by side"
_MENU_PIXELS = 520
"""Wide enough for the hint, and for four names beside each other."""
_NAME_PIXELS, _ON_A_PHONE = 205, 150
_HINT = "the newest {} are listed; type the whole name of another"


def choose_runs(
    known: Mapping[str, object],
    *,
    most: int | None = None,
    label_visibility: Literal["visible", "collapsed"] = "visible",
    within: DeltaGenerator | None = None,
) -> list[str]:
    """Draw the box and return the names that are chosen; the name of an older run than those listed can be typed.

    Args:
        known: Every run by its name, newest first.
        most: How many may be chosen.
        label_visibility: Whether the box states what it is to those who see it.
        within: Where the box goes. None: here, where names that no run has are reported in any case.
    """
    multiselect = st.multiselect if within is None else partial(within.multiselect, width=_MENU_PIXELS)
    shared: Any = {"key": "runs", "bind": "query-params", "max_selections": most, "label_visibility": label_visibility}
    # Enter takes every match, and a name that merely has the letters in their order is not meant.
    shared["filter_mode"] = "contains"
    if len(known) <= LISTED:
        # The box takes out of the address what it does not list.
        if missing := [name for name in st.query_params.get_all("runs") if name not in known]:
            _missing(missing)
        return multiselect("Runs", list(known), placeholder="newest first", **shared)
    hint = _HINT.format(OFFERED)
    named = multiselect("Runs", list(islice(known, OFFERED)), placeholder=hint, accept_new_options=True, **shared)
    if missing := [name for name in named if name not in known]:
        _missing(missing)
    return [name for name in named if name in known]


def hold_side_by_side(names: Sequence[str]) -> None:
    """Have the page of comparison hold these runs side by side; a button there calls it when it is pressed.

    Streamlit refuses to set a parameter of the address that a box is bound to; the box, when set, changes the address.
    """
    st.session_state["part"] = SIDE_BY_SIDE
    st.session_state["runs" if "runs" in st.session_state else _HELD] = list(names)


def go_where_held() -> None:
    """Open the comparison of what `hold_side_by_side` was given on a page without the box, if it was called."""
    if names := st.session_state.pop(_HELD, None):
        state.go(state.COMPARE, runs=names)


def choose_run(known: Mapping[str, object]) -> str | None:
    """Draw a box for one run and return its name; None as long as none is chosen."""
    if len(known) <= LISTED:
        return st.selectbox("Choose a run", list(known), index=None, placeholder="newest first")
    named = st.selectbox(
        "Choose a run",
        list(islice(known, OFFERED)),
        index=None,
        placeholder=_HINT.format(OFFERED),
        accept_new_options=True,
    )
    if named is None or named in known:
        return named
    _missing([named])
    return None


def name_pixels() -> int:
    """Return how wide the column of names is; on a phone other columns are to be seen beside it."""
    return _ON_A_PHONE if "Mobi" in st.context.headers.get("User-Agent", "") else _NAME_PIXELS


def _missing(names: Sequence[str]) -> None:
    markup.note(f"There is no run {', '.join(names)} in {state.root()}.")
