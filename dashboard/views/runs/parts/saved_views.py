"""Saved views of the runs page: choose, save, rename and delete them, and copy the link of what is shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from urllib.parse import urlsplit, urlunsplit

import streamlit as st

from dashboard.shared.parts import problems
from dashboard.shared.parts.gate import may_operate
from dashboard.shared.session import state
from dashboard.shared.tables.run_rows import Listing
from dashboard.shared.tables.runs_table import BY_KEY, FIRST_CHOICE, GROUP_FIELDS, SORT_FIELDS
from dashboard.views.runs.logic import saved_views
from dashboard.views.runs.logic.saved_views import PARAMETERS, SavedView
from schemas.problems import ProblemError

_ASKED = "view to apply"
_COMPLAINT = "what went wrong with a view"
_CHOSEN = "saved_view"
_NAME = "view_name"


def popover() -> None:
    """Draw the button behind which the views are."""
    with st.popover("Views", icon=":material/bookmark:", key="runs_views"):
        try:
            views = saved_views.saved_views(state.root())
        except ProblemError as error:
            problems.show(error.problems)
            return
        if complaint := st.session_state.pop(_COMPLAINT, None):
            problems.show(complaint)
        names = [view.name for view in views]
        st.selectbox(
            "Saved views",
            names,
            index=None,
            key=_CHOSEN,
            placeholder="choose one" if names else "none yet",
            disabled=not names,
            on_change=_ask_for,
            args=(views,),
        )
        if may_operate():
            _changing()
        st.caption("Link to what is shown now")
        st.code(_link(), language=None, wrap_lines=True)


def _changing() -> None:
    """Draw what changes the saved views, which all readers share."""
    st.text_input("Name", key=_NAME, max_chars=saved_views.LONGEST_NAME, placeholder="best of gemma")
    chosen = st.session_state.get(_CHOSEN)
    with st.container(horizontal=True):
        st.button(
            "Save", on_click=_change, args=[_save], icon=":material/bookmark_add:", help="Keep what is shown now."
        )
        st.button(
            "Rename", on_click=_change, args=[_rename], disabled=chosen is None, help="Give the chosen view this name."
        )
        st.button("Delete", on_click=_change, args=[_delete], disabled=chosen is None, icon=":material/delete:")


def apply_chosen(listing: Listing) -> bool:
    """Set search, filters and look as the view that was just chosen states; before any of their widgets is drawn.

    Returns:
        Whether one was chosen. Streamlit complains of a widget that is set so and has a first value of its own.
    """
    view: SavedView | None = st.session_state.pop(_ASKED, None)
    if view is None:
        return False
    named = [*listing.settings, *listing.figures]
    address = view.address
    st.session_state["q"] = " ".join(address.get("q", ()))
    for key in ("grade", "mode", "status", "tag"):
        st.session_state[key] = list(address.get(key, ()))
    columns = _known_values(address.get("columns", ()), [*(key for key in BY_KEY if key != "run"), *named])
    st.session_state["columns"] = columns or list(FIRST_CHOICE)
    st.session_state["sort"] = next(iter(_known_values(address.get("sort", ()), [*SORT_FIELDS, *named])), None)
    st.session_state["group"] = next(
        iter(_known_values(address.get("group", ()), [*GROUP_FIELDS, *listing.settings])), None
    )
    st.session_state["order"] = "descending" if "descending" in address.get("order", ()) else "ascending"
    st.session_state["archived"] = "true" in address.get("archived", ())
    return True


def _known_values(values: Sequence[str], options: Sequence[str]) -> list[str]:
    allowed = set(options)
    return [value for value in dict.fromkeys(values) if value in allowed]


def _ask_for(views: Sequence[SavedView]) -> None:
    name = st.session_state.get(_CHOSEN)
    st.session_state[_ASKED] = next((view for view in views if view.name == name), None)
    st.session_state[_NAME] = name or ""


def _change(change: Callable[[str], str | None]) -> None:
    """Change the saved views by the name that is written and choose what it returns, or keep what went wrong."""
    try:
        chosen = change(st.session_state.get(_NAME, ""))
    except ProblemError as error:
        st.session_state[_COMPLAINT] = error.problems
        return
    st.session_state[_CHOSEN] = None if chosen is None else " ".join(chosen.split())
    st.session_state[_NAME] = "" if chosen is None else st.session_state.get(_NAME, "")


def _save(name: str) -> str:
    saved_views.save(state.root(), name, _address())
    return name


def _rename(name: str) -> str:
    saved_views.rename(state.root(), st.session_state[_CHOSEN], name)
    return name


def _delete(_: str) -> None:
    saved_views.delete(state.root(), st.session_state[_CHOSEN])


def _address() -> dict[str, tuple[str, ...]]:
    """Return the values of the widgets, as the address has it; what is as at first is left out."""
    said: dict[str, tuple[str, ...]] = {}
    for key in PARAMETERS:
        value = st.session_state.get(key)
        if isinstance(value, str):
            said[key] = (value,)
        elif isinstance(value, bool):
            said[key] = ("true",) if value else ()
        else:
            said[key] = tuple(value or ())
    if said["order"] == ("ascending",) or not said["sort"]:
        said["order"] = ()
    if said["columns"] == FIRST_CHOICE:
        said["columns"] = ()
    return {key: values for key, values in said.items() if any(values)}


def _link() -> str:
    here = urlsplit(st.context.url or "")
    return urlunsplit(here._replace(path=here.path or "/", query="")) + SavedView(name="", address=_address()).link
