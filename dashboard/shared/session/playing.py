"""The models that play for one visitor: at most one process, ended when the visitor leaves its tab."""

from __future__ import annotations

import streamlit as st

from launch.playing import PlaySession

_SESSION = "models that play"


def session() -> PlaySession | None:
    """Return what plays for this visitor, or None if nothing does."""
    found: PlaySession | None = st.session_state.get(_SESSION)
    return found


def keep(started: PlaySession) -> None:
    """Have this visitor's questions go to another process."""
    leave()
    st.session_state[_SESSION] = started


def leave() -> None:
    """End what plays for this visitor, if anything does."""
    found: PlaySession | None = st.session_state.pop(_SESSION, None)
    if found is not None:
        found.stop()
