"""A word above the list when runs came, went or ended since it was drawn; a click draws it anew.

It is not drawn anew by itself: whoever reads a table, or writes a note on a run in it, would lose their place.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import streamlit as st

from dashboard.shared.parts import markup
from dashboard.shared.session import reading
from dashboard.views.runs.logic.look import news
from evidence.index.runs import RunSummary

_JUST_DRAWN_SECONDS = 1.0


def show(shown: Sequence[RunSummary]) -> None:
    """Look at the folders every few seconds, and say what is new."""
    if reading.is_whole():
        st.fragment(run_every=reading.seconds_to_next_look())(_look)(shown, drawn_at=time.monotonic())


def _look(shown: Sequence[RunSummary], *, drawn_at: float) -> None:
    if time.monotonic() - drawn_at < _JUST_DRAWN_SECONDS:
        return  # With the page itself, which looks for itself once it stands.
    if said := news(shown, reading.looked()):
        with st.container(horizontal=True, vertical_alignment="center", key="runs_news"):
            markup.note(f"{said[:1].upper()}{said[1:]} since this list was drawn.")
            if st.button("Show", icon=":material/refresh:", type="tertiary"):
                st.rerun()
