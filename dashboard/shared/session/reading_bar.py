"""How far a long reading is: `Reading runs: 312 of 2,000`, drawn only where it takes long enough to wonder."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import streamlit as st

from evidence.index.workers import Progress

_PATIENCE_SECONDS = 0.3
_STEP_SECONDS = 0.1


@contextmanager
def reading_bar(doing: str = "Reading runs") -> Iterator[Progress]:
    """Give a function to report how many runs are done of how many; the bar goes away at the end."""
    place = st.empty()
    began = drawn = time.monotonic()

    def tell(done: int, whole: int) -> None:
        nonlocal drawn
        now = time.monotonic()
        if now - began < _PATIENCE_SECONDS or now - drawn < _STEP_SECONDS:
            return
        drawn = now
        place.progress(_share(done, whole), text=f"{doing}: {done:,} of {whole:,}")

    try:
        yield tell
    finally:
        place.empty()


def still_reading(done: int, whole: int) -> None:
    """Say above a page that it is drawn from a part of the runs."""
    st.progress(
        _share(done, whole),
        text=f"Reading runs: {done:,} of {whole:,}. Showing the runs loaded so far.",
    )


def _share(done: int, whole: int) -> float:
    return min(1.0, done / max(1, whole))
