"""The menu that holds a run against its parent, its smoke run, the run before it, the best one, or any other."""

from __future__ import annotations

from collections.abc import Mapping

import streamlit as st

from dashboard.shared.session import state
from dashboard.shared.words.text import plain, shorten
from evidence.compare.pairing import counterparts
from evidence.index.runs import RunSummary

_ANOTHER = "another run"
_LONGEST_NAME = 40


def draw(summary: RunSummary, known: Mapping[str, RunSummary], *, key: str = "compare with") -> None:
    """Draw the menu; what is chosen stands first in the comparison, so that this run is compared with it."""
    name, others = summary.path.name, counterparts(summary, list(known.values()))
    options = {f"{what}: {shorten(plain(run.path.name), _LONGEST_NAME)}": run.path.name for what, run in others.items()}
    chosen = st.menu_button("Compare with …", [*options, _ANOTHER], key=key, icon=":material/compare_arrows:")
    if chosen is not None:
        state.go(state.COMPARE, runs=[*([] if chosen == _ANOTHER else [options[chosen]]), name])
