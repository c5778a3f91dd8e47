"""A word on any page when a run that was started here has ended."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from dashboard.logic.grades import JOBS
from dashboard.logic.jobs.folder import jobs
from dashboard.logic.text import plain

TICK_SECONDS = 3.0
_SEEN = "states of jobs seen last"


def show(root: Path) -> None:
    """Say what has ended since this reader last looked, and look again every few seconds while something is at work."""
    active = any(not job.has_ended for job in jobs(root))
    st.fragment(run_every=TICK_SECONDS if active else None)(_look)(root)


def _look(root: Path) -> None:
    known = jobs(root)
    before = st.session_state.get(_SEEN)
    for job in known:
        # What had ended before this reader came is no news; what they saw at work, or never saw at all, is.
        if before is not None and job.has_ended and before.get(job.job_id) != job.state:
            st.toast(f"{plain(job.run)}: {job.state}. {JOBS[job.state].meaning}", icon=":material/flag:", duration=20)
    st.session_state[_SEEN] = {job.job_id: job.state for job in known}
