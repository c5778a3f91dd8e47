"""Start a run with one click, and report failures of buttons."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import streamlit as st

from dashboard.shared.config import configs
from dashboard.shared.parts import markup
from dashboard.shared.parts.gate import may_operate
from dashboard.shared.session import state
from launch import queue
from launch.jobs import LOCAL


def smoke_button() -> None:
    """Draw the button that starts the smallest smoke test."""
    with st.container(horizontal=True, horizontal_alignment="center"):
        if may_operate() and st.button("Start a smoke run", type="primary", icon=":material/play_arrow:"):
            start(configs.quick_smoke())
        if st.button("Choose a configuration"):
            state.go(state.LAUNCH)


def start(*configs: Mapping[str, Any], force: bool = False, place: str = LOCAL) -> None:
    """Queue valid configurations and open the first run, or show why that failed."""
    if not may_operate():
        return
    with trying("The run could not be started"):
        jobs = [queue.start(state.root(), config, force=force, place=place) for config in configs]
        state.go(state.RUN, run=jobs[0].run)


@contextmanager
def trying(failed: str) -> Iterator[None]:
    """Show an `OSError` of a button's action on the page."""
    try:
        yield
    except OSError as error:
        markup.note(f"{failed}: {error}. Fix that and press the button again.")
