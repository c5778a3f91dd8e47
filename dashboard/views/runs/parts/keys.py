"""The runs page by keyboard: a small local script, and the list of its keys for the reader.

The table moves by arrows of its own. The script adds what a table of Streamlit lacks: `/` goes to the search, Enter
opens the run of the row, Space ticks it, `c` compares the ticked runs. It sends nothing but the name in the row, and
that counts only if it is one of the listed runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import streamlit as st

from dashboard.shared.parts import markup
from dashboard.shared.session import state
from dashboard.shared.tables.run_rows import Row

COMPARE = "compare_chosen"
"""Key of the button that `c` presses; the script finds it by this name."""

KEYS = (
    ("/", "Go to the search"),
    ("Tab", "Go to the filters, the table, the buttons; leave the table"),
    ("Arrows", "Move in the table"),
    ("Enter", "Open the run of the row"),
    ("Space", "Tick the row, or take the tick away"),
    ("c", "Compare the ticked runs"),
    ("Ctrl F", "Find in the rows that are shown, while the table has the focus"),
    ("?", "Show these keys"),
)
_ON = "keys_on"
_SWITCHED = "keys were switched"
_SCRIPT = (Path(__file__).parents[3] / "static" / "keys.js").read_text("utf-8")
_component = st.components.v2.component("runs_keys", js=_SCRIPT)


def listen(listed: Sequence[Row]) -> None:
    """Listen to the keys and open the run that Enter was pressed on, if it is one of those that are listed."""
    if not st.session_state.get(_ON, True):
        return
    pressed = _component(key="runs_keys", on_open_change=_nothing)
    names = [row.name for row in listed if row.shown_name == pressed.open] if pressed.open else []
    if names:
        state.go(state.RUN, run=names[0])


def popover() -> None:
    """Draw the button behind which the keys are listed."""
    with st.popover("Keyboard", icon=":material/keyboard:", key="keyboard"):
        markup.table(["Key", "What it does"], KEYS)
        # Who speaks to the machine instead of typing must be able to turn single letters off.
        st.toggle("Listen to these keys", value=True, key=_ON, persist_state="session", on_change=_switch)
        if st.session_state.pop(_SWITCHED, False):
            st.rerun()  # The script stands outside this part of the page.


def _switch() -> None:
    st.session_state[_SWITCHED] = True


def _nothing() -> None:
    """Stand where Streamlit wants a function to know that `open` is sent."""
