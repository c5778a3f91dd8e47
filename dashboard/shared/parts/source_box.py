"""The box on the Plan and Launch pages that chooses a configuration to start from."""

from __future__ import annotations

import streamlit as st

from dashboard.shared.config import configs
from dashboard.shared.config.configs import StartConfig
from dashboard.shared.session import reading, state

_EARLIER = 100
"""Number of runs, the newest first, whose configurations are offered."""
_LAST = "last source shown"


def choose() -> StartConfig | None:
    """Draw the box and return the chosen configuration, or None if there is nothing to choose from."""
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
