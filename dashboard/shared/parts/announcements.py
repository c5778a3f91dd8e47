"""A word on any page when a run has ended: one that was started here, or one that was seen at work."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

import streamlit as st

from dashboard.shared.session import reading
from dashboard.shared.words.grades import JOBS, STATUSES, Sign
from dashboard.shared.words.text import plain

TICK_SECONDS = 3.0
_JOBS = "states of jobs seen last"
_RUNS = "states of runs seen at work"


def show(root: Path, at_work: Collection[str]) -> None:
    """Say what has ended since this reader last looked, and look again every few seconds while something is at work.

    `at_work` are the folders of runs at work as far as the page knows; most are started in a terminal.
    """
    active = bool(at_work) or any(not job.has_ended for job in reading.jobs())
    st.fragment(run_every=TICK_SECONDS if active else None)(_look)(root, at_work)


def _look(root: Path, at_work: Collection[str]) -> None:
    known = reading.jobs()
    before = st.session_state.get(_JOBS)
    for job in known:
        # What had ended before this reader came is no news; what they saw at work, or never saw at all, is.
        if before is not None and job.has_ended and before.get(job.job_id) != job.state:
            _say(job.run, job.state, JOBS)
    st.session_state[_JOBS] = {job.job_id: job.state for job in known}
    # A job states itself how it ended.
    seen: dict[str, str | None] = st.session_state.setdefault(_RUNS, {})
    watched = {*at_work, *(name for name, status in seen.items() if status == "running")} - {job.run for job in known}
    for name in sorted(watched):
        status = reading.run_of(root / name).status
        has_ended = status in STATUSES and status != "running"
        # The page may take a run to be at work that ended before this reader came, or was reported to have ended.
        if status and has_ended and seen.get(name) == "running":
            _say(name, status, STATUSES)
        seen[name] = status


def _say(name: str, state: str, words: Mapping[str, Sign]) -> None:
    st.toast(f"{plain(name)}: {state}. {words[state].meaning}", icon=":material/flag:", duration=20)
