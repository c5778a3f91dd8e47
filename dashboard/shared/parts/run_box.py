"""Boxes to choose runs by their names, which are in the URL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from dashboard.shared import configs, reading, state
from dashboard.shared.configs import StartConfig
from dashboard.shared.parts import gate, markup
from dashboard.shared.words import plain
from evidence.bundle.page import shared_report
from evidence.bundle.secrets import strip_invisible
from evidence.index.summary import RunSummary
from evidence.notes import MAX_NOTE, NotesEdit, change_notes, split_tags
from schemas.formats import quantity

SIDE_BY_SIDE = "Side by side"  # tab of the Compare page that compares runs in detail
MAX_SIDE_BY_SIDE = 20
TO_COMPARE = "runs to compare side by side"
LISTED = 200  # number of runs up to which all are listed
OFFERED = 60  # number of runs that are listed of more: each name costs the browser a millisecond per rerun
_MENU_PIXELS = 520


def choose_runs(
    known: Mapping[str, object], *, most: int | None = None, within: DeltaGenerator | None = None
) -> list[str]:
    """Draw a box for several runs (at most `most`) and return the chosen names; `known` are the runs, newest first.

    The box is drawn in `within`. Names that no run has are always reported here.
    """
    multiselect = st.multiselect if within is None else partial(within.multiselect, width=_MENU_PIXELS)
    # Enter takes every match, so a match must contain what was typed.
    shared: Any = {"key": "runs", "bind": "query-params", "max_selections": most, "filter_mode": "contains"}
    requested = st.query_params.get_all("runs")  # The box removes names that it does not list.
    named = multiselect("Runs", **_offer(known), **shared, label_visibility="visible" if within else "collapsed")
    _report_missing([name for name in (requested if len(known) <= LISTED else named) if name not in known])
    return [name for name in named if name in known]


def choose_run(known: Mapping[str, object]) -> str | None:
    """Draw a box for one run and return its name, or None until one is chosen."""
    named: str | None = st.selectbox("Choose a run", index=None, **_offer(known))
    _report_missing([named] if named and named not in known else [])
    return named if named in known else None


def _offer(known: Mapping[str, object]) -> dict[str, Any]:
    """Return the options of a box: all runs, or the newest of many; any other name can be typed."""
    if len(known) <= LISTED:
        return {"options": list(known), "placeholder": "newest first"}
    hint = f"the newest {OFFERED} are listed; type the whole name of another"
    return {"options": list(known)[:OFFERED], "placeholder": hint, "accept_new_options": True}


def hold_side_by_side(names: Sequence[str]) -> None:
    """Compare these runs side by side; the callback of a button on the Compare page.

    Streamlit refuses to set a query parameter that a widget is bound to, so this sets the widget if there is one.
    """
    st.session_state["part"] = SIDE_BY_SIDE
    st.session_state["runs" if "runs" in st.session_state else TO_COMPARE] = list(names)


def _report_missing(names: Sequence[str]) -> None:
    if names:
        markup.note(f"There is no run {', '.join(names)} in {state.root()}.")


_EARLIER = 100  # number of runs, the newest first, whose configurations are offered
_LAST = "last source shown"


def choose_source() -> StartConfig | None:
    """Draw the select box of configurations and return the chosen one, or None without configurations."""
    folders = [summary.path for summary in reading.summaries()]
    if state.has_arrived() and "source" not in st.query_params and _LAST in st.session_state:
        st.query_params["source"] = st.session_state[_LAST]
    linked = st.query_params.get("source")
    near = [folder for at, folder in enumerate(folders) if at < _EARLIER or configs.same_as(folder.name) == linked]
    known = {source.key: source for source in configs.sources(near)}
    if not known:
        return None
    key = st.selectbox(
        "Start from",
        list(known),
        key="source",
        bind="query-params",
        width=420,
        help="A built-in configuration or one of an earlier run.",
    )
    st.session_state[_LAST] = key
    return known[key]


def edit(runs: Sequence[RunSummary]) -> None:
    """Open the dialog, which writes notes.json of each run."""
    st.session_state[state.DIALOG] = True
    _draw_dialog(runs)


@st.dialog("Tags and note", width="medium", on_dismiss=lambda: st.session_state.pop(state.DIALOG, None))
def _draw_dialog(runs: Sequence[RunSummary]) -> None:
    names = ", ".join(strip_invisible(run.path.name) for run in runs[:5])
    more = f" and {len(runs) - 5:,} more" if len(runs) > 5 else ""
    markup.note(f"{quantity(len(runs), 'run')}: {names}{more}.")
    present = list(dict.fromkeys(tag for run in runs for tag in run.tags))
    add = st.text_input("Add tags", placeholder="baseline seed-3", help="Single words, separated by spaces or commas.")
    remove = st.multiselect("Remove tags", present, disabled=not present, placeholder="none")
    if len(runs) > 1 and present:
        common = [tag for tag in present if all(tag in run.tags for run in runs)]
        markup.note(f"Tags in common: {', '.join(common) or 'none'}.")
    before = runs[0].note or ""
    is_same = all((run.note or "") == before for run in runs)
    replaces = is_same or st.toggle("Replace their notes", help="These runs have different notes.")
    shown = before if is_same else ""
    text = st.text_area("Note", value=shown, max_chars=MAX_NOTE, disabled=not replaces, height=140)
    markup.note("Stored in notes.json of each run. Grades do not depend on it.")
    if st.button("Save", type="primary", icon=":material/save:") and gate.may_operate():
        note = text if replaces and not (is_same and text == before) else None
        change = NotesEdit(add=split_tags(add), remove=tuple(remove), note=note)
        with gate.trying("The notes could not be saved"):
            change_notes([run.path for run in runs], change, datetime.now(UTC))
            reading.look_again()
            st.rerun()


def draw_share(folders: Sequence[Path]) -> None:
    """Draw the menu that offers a page to share; it is only created when its button is pressed."""
    name = f"{folders[0].name if len(folders) == 1 else 'comparison'}.html"
    with st.popover("Share", icon=":material/ios_share:"):
        markup.note(f"{name} holds figures, grades and findings as one HTML page. No scripts; secrets are masked.")
        markup.download(f"Download {plain(name)}", lambda: shared_report(folders), name, mime="text/html")
