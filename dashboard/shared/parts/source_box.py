"""The box of configurations to start from, the same on each page that plans or starts one."""

from __future__ import annotations

import streamlit as st

from dashboard.shared.config import configs
from dashboard.shared.config.configs import StartConfig
from dashboard.shared.session import reading, state

_EARLIER = 100
"""Newest runs whose configurations are offered."""
_LAST = "source looked at last"


def choose() -> StartConfig | None:
    """Draw the box and return what is chosen; None, and nothing drawn, where there is nothing to choose from."""
    folders = [summary.path for summary in reading.summaries()]
    if state.has_arrived() and "source" not in st.query_params and _LAST in st.session_state:
        st.query_params["source"] = st.session_state[_LAST]
    asked = st.query_params.get("source")
    # A box of thousands of runs helps no one; the one that a link names is always among them.
    near = [folder for at, folder in enumerate(folders) if at < _EARLIER or configs.same_as(folder.name) == asked]
    known = {source.key: source for source in configs.sources(near)}
    if not known:
        return None
    key = st.selectbox(
        "Start from",
        list(known),
        key="source",
        bind="query-params",
        width=420,
        help="A configuration that ships with the program, or that of an earlier run.",
    )
    st.session_state[_LAST] = key
    return known[key]
