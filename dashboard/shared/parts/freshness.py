"""No verdict over what is on disk no longer: a page watches the folders of the runs that it shows."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from dashboard.shared.parts import markup
from dashboard.shared.session import reading
from evidence.index.summary import RunSummary

TICK_SECONDS, _WAITING_SECONDS = 2.0, 0.5


def are_as_judged(shown: Sequence[RunSummary]) -> bool:
    """Return whether runs may be shown with their verdicts, and keep watching their folders.

    Where a folder has changed, show it and have the page drawn again as soon as the run is judged anew.
    """
    is_waiting = bool(reading.changed_runs(shown))
    every = _WAITING_SECONDS if is_waiting else TICK_SECONDS
    st.fragment(run_every=every)(_watch)(shown, is_waiting=is_waiting)
    return not is_waiting


def follow_theme() -> None:
    """Have the page drawn again when the system turns dark or light: pictures have the colours they were drawn in."""
    st.fragment(run_every=TICK_SECONDS)(_watch_theme)(st.context.theme.type)


def _watch_theme(drawn: str | None) -> None:
    if st.context.theme.type != drawn:
        st.rerun()


def _watch(shown: Sequence[RunSummary], *, is_waiting: bool) -> None:
    names = reading.changed_runs(shown)
    if reading.were_judged_again(shown) or (is_waiting and not names):
        st.rerun()
    if names:
        markup.draw_changed(f"Changed on disk since it was checked: {', '.join(names)}. Checking again.")
