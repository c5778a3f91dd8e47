"""Starting a run with one click, and saying where a button could not do what it says."""

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
    """Draw the button that starts the smallest smoke run."""
    with st.container(horizontal=True, horizontal_alignment="center"):
        if may_operate() and st.button("Start a smoke run", type="primary", icon=":material/play_arrow:"):
            start(configs.quick_smoke())
        if st.button("Choose a configuration"):
            state.go(state.LAUNCH)


def start(*configs: Mapping[str, Any], force: bool = False, place: str = LOCAL) -> None:
    """Put checked configurations into the queue and open the first one's run, or say why that was not possible."""
    if not may_operate():
        return
    with trying("The run could not be started"):
        jobs = [queue.start(state.root(), config, force=force, place=place) for config in configs]
        state.go(state.RUN, run=jobs[0].run)


@contextmanager
def trying(failed: str) -> Iterator[None]:
    """Do what a button asks of the disk; where that fails, say so in place of it, and the page goes on."""
    try:
        yield
    except OSError as error:
        markup.note(f"{failed}: {error}. Fix that and press the button again.")
