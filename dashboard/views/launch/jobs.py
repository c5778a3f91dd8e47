"""The queue: each job with its progress, output and buttons."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Sequence
from pathlib import Path

import streamlit as st

from dashboard.shared.config import configs, form
from dashboard.shared.parts import config_form, course, markup
from dashboard.shared.parts.gate import may_operate
from dashboard.shared.parts.launching import trying
from dashboard.shared.session import reading, state
from dashboard.shared.words.grades import JOBS
from launch import queue
from launch.jobs import ANY_DEVICE, OUTPUT, Job, tail
from launch.queue import can_resume
from schemas.formats import size
from schemas.reading import get_number

TICK_SECONDS = 1.5
MIN_FREE_BYTES = 1 << 16
"""Free disk space below which no job can start."""
_WAITING_SHOWN, _ENDED_SHOWN, _ENDED_FOLDED = 3, 1, 12
_BAD = frozenset({"failed", "refused", "lost"})


def show_queue(root: Path) -> None:
    """Draw the queue, and keep it up to date while a job is waiting or running."""
    active = any(not job.has_ended for job in reading.jobs())
    st.fragment(run_every=TICK_SECONDS if active else None)(_queue)(root, was_active=active)


def _queue(root: Path, *, was_active: bool) -> None:
    jobs = reading.jobs()
    active = [job for job in jobs if not job.has_ended]
    if was_active and not active:
        st.rerun()
    waiting = [job for job in active if job.state == "waiting"]
    _warn_if_stuck(root, active, waiting)
    first = waiting[0] if waiting else None
    for job in active:
        if job not in waiting[_WAITING_SHOWN:]:
            _job(root, job, can_move=job is not first)
    _folded(root, waiting[_WAITING_SHOWN:], "More waiting jobs", key="later")
    chosen = st.query_params.get("job")
    # Newest first, but the job in the address before all others.
    ended = sorted((job for job in reversed(jobs) if job.has_ended), key=lambda job: job.job_id != chosen)
    for job in ended[:_ENDED_SHOWN]:
        _job(root, job)
    _folded(root, ended[_ENDED_SHOWN:], "Earlier jobs", key="ended", limit=_ENDED_FOLDED)


def _warn_if_stuck(root: Path, active: Sequence[Job], waiting: Sequence[Job]) -> None:
    if waiting and not queue.has_worker(root):
        markup.note("The queue is not running: the machine or the worker of the queue was stopped.")
        if may_operate() and st.button("Continue the queue", type="primary"):
            with trying("The queue could not be continued"):
                queue.start_worker(root)
                st.rerun()
    elif waiting and len(waiting) == len(active):
        try:
            free = shutil.disk_usage(root).free
        except OSError:
            return  # the folder was just removed
        if free < MIN_FREE_BYTES:
            markup.note(
                f"No job can start: the disk of {root} has only {size(free)} left. Free some space to continue."
            )


def _folded(root: Path, jobs: Sequence[Job], title: str, *, key: str, limit: int | None = None) -> None:
    if not jobs:
        return
    rest = st.expander(f"{title}: {len(jobs)}", key=key, on_change="rerun", bind="query-params")
    if rest.open:
        with rest:
            for job in jobs[:limit]:
                _job(root, job, can_move=True)
            if limit is not None and len(jobs) > limit:
                markup.note(f"Not shown: {len(jobs) - limit} older jobs.")


def _job(root: Path, job: Job, *, can_move: bool = False) -> None:
    with st.container(border=True):
        with st.container(horizontal=True, vertical_alignment="center"):
            device = "" if job.device == ANY_DEVICE else f"on a {job.device.upper()} · "
            how = f" · {reason.rstrip('.')}" if job.has_ended and (reason := course.describe(job)) else ""
            details = f"{device}queued {markup.when(job.created_at, reading.reader_zone())}{markup.safe(how)}"
            st.html(
                f'<div class="tp-sub">{markup.sign(JOBS, job.state)} <b>{markup.safe(job.run)}</b> '
                f'<span class="tp-dim">{details}</span></div>'
            )
            with st.container(horizontal=True, width="content"):
                if (root / job.run).is_dir() and st.button(
                    "Open run", key=f"open {job.job_id}", icon=":material/show_chart:"
                ):
                    state.go(state.RUN, run=job.run)
                if may_operate():
                    _buttons(root, job, can_move=can_move)
        if job.state in {"running", "stopping"}:
            course.draw_stage(job.run, job)
        elif job.state == "unsealed":
            markup.note(JOBS[job.state].meaning)
        if job.has_ended and (text := tail(job.folder / OUTPUT)):
            with st.expander("Last output", expanded=job.state in _BAD or (job.exit_code or 0) < 0):
                st.code(text, language=None, wrap_lines=True)


def _buttons(root: Path, job: Job, *, can_move: bool) -> None:
    key = job.job_id
    if job.state == "waiting":
        if can_move and st.button("Earlier", key=f"up {key}", icon=":material/arrow_upward:"):
            with trying("The job could not be moved"):
                queue.move_up(root, job)
                st.rerun()
        course.stop_button(job, key=f"remove {key}")
    if job.state == "running":
        course.stop_button(job, key=f"stop {key}")
    if job.state == "stopping":
        # It takes the place of Stop, so it needs a second click: a double click must not lose what is being saved.
        with st.popover("Kill", icon=":material/dangerous:", key=f"before kill {key}"):
            markup.note("Ends the process immediately. Rows written so far stay, but the run is not finalized.")
            if st.button("Kill it now", key=f"kill {key}", type="primary"):
                with trying("The job could not be killed"):
                    queue.kill(job)
                    st.rerun()
    if job.has_ended:
        _next_buttons(root, job)


def _next_buttons(root: Path, job: Job) -> None:
    """Draw what can follow a job that has ended."""
    key, folder = job.job_id, root / job.run
    run = reading.run_of(folder) if folder.is_dir() else None
    known = reading.by_name(reading.summaries())
    if (
        run is not None
        and can_resume(run)
        and reading.continuation_of(job.run, known) is None
        and st.button("Resume", key=f"resume {key}", icon=":material/resume:", help=_RESUME)
    ):
        with trying("The run could not be resumed"):
            state.go(state.RUN, run=queue.resume(root, run, after=job).run)
    rows = get_number(run.config, "batch", "microbatch_size") if run is not None else None
    if run is not None and rows is not None and rows >= 2 and job.exit_code == -signal.SIGKILL:
        steps = get_number(run.config, "batch", "accumulation_steps") or 1
        half = [f"batch.microbatch_size={rows // 2:.0f}", f"batch.accumulation_steps={2 * steps:.0f}"]
        if st.button("Halve the microbatch", key=f"halve {key}", help=_HALVE, on_click=_edit, args=(job.run, half)):
            st.rerun()
    if job.state != "succeeded" and st.button("Retry", key=f"retry {key}", icon=":material/replay:", help=_RETRY):
        with trying("The job could not be queued again"):
            state.go(state.RUN, run=queue.retry(root, job).run)


_RESUME = "Continues from the last checkpoint, as a new run that names this one as its parent."
_RETRY = "Queues the same configuration again as a new run. The old run stays."
_HALVE = "A killed process usually ran out of memory. Changes the form below to half the rows in each microbatch."


def _edit(run: str, assignments: Sequence[str]) -> None:
    """Open the configuration of a run in the form below, with changes."""
    st.session_state["source"] = configs.same_as(run)
    config_form.put(configs.same_as(run), form.parse_assignments(assignments))
