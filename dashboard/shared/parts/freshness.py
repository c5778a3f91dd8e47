"""Keep an open page up to date: it reruns when its runs change, and announces runs that are new or have ended.

Every page has one timer, `watch`. It also requests refreshes of the index: nothing is read while no page is open.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import streamlit as st

from dashboard.shared.parts import markup
from dashboard.shared.reading.shared_index import POLL_SECONDS
from dashboard.shared.session import reading, state
from dashboard.shared.words.grades import JOBS, STATUSES
from dashboard.shared.words.text import plain
from evidence.index.summary import RunSummary

_GRADED = "runs that the page shows with their grades, and those that have changed"
_SEEN = "states of jobs and runs at the last look"
_ACTIVE = "active"
_AT_WORK = {_ACTIVE, "running"}
_SIGNS = {**JOBS, **STATUSES}
_MOST_TOASTS = 3


def are_as_judged(shown: Sequence[RunSummary]) -> bool:
    """Return whether the folders of runs are still as they were graded; otherwise say that they are checked again."""
    changed = reading.changed_runs(shown)
    st.session_state[_GRADED] = (shown, changed)
    if changed:
        markup.draw_changed(f"Changed on disk since it was checked: {', '.join(changed)}. Checking again.")
    return not changed


def watch() -> None:
    """Rerun the page when a run that it shows has changed on disk, or the theme of the browser."""
    shown, changed = st.session_state.pop(_GRADED, ((), []))
    drawn = (reading.take_version(), changed, st.context.theme.type)
    st.fragment(run_every=POLL_SECONDS)(_tick)(shown, drawn, time.monotonic())


def _tick(shown: Sequence[RunSummary], drawn: tuple[int | None, list[str], str | None], drawn_at: float) -> None:
    index = reading.shared_index()
    index.poll()
    version = None if drawn[0] is None else index.version
    is_current = (version, reading.changed_runs(shown), st.context.theme.type) == drawn
    if is_current or time.monotonic() - drawn_at < POLL_SECONDS / 2:
        _announce()
    elif not state.has_dialog():  # A rerun would close it, and what was typed there would be lost.
        st.rerun()


def _announce() -> None:
    """Show a toast for each run that is new or has ended since this visitor's last look."""
    index = reading.shared_index()
    if not index.is_whole:
        return
    known = reading.jobs()
    started_here = {job.run for job in known}
    now = {job.job_id: (job.run, job.state if job.has_ended else _ACTIVE) for job in known}
    for run in index.runs:
        if run.path.name not in started_here:
            now[run.path.name] = (run.path.name, run.status or "new run")
    before: Mapping[str, tuple[str, str]] | None = st.session_state.get(_SEEN)
    st.session_state[_SEEN] = now
    if before is None:
        return
    changed = [now[key] for key in now if key not in before or (before[key][1] in _AT_WORK and before[key] != now[key])]
    news = [(name, status) for name, status in changed if status != _ACTIVE]
    for name, status in news[:_MOST_TOASTS]:
        meaning = _SIGNS[status].meaning if status in _SIGNS else ""
        st.toast(f"{plain(name)}: {status}. {meaning}".strip(), icon=":material/flag:", duration=20)
    if len(news) > _MOST_TOASTS:
        st.toast(f"{len(news) - _MOST_TOASTS:,} more runs are new or have ended.", icon=":material/flag:")
