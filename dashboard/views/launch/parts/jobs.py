"""The queue of jobs: each with its state, progress, last output, and what can be done with it."""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from pathlib import Path

import streamlit as st

from dashboard.shared.parts import course, markup
from dashboard.shared.parts.gate import may_operate
from dashboard.shared.parts.launching import trying
from dashboard.shared.session import reading, state
from dashboard.shared.tables import headline
from dashboard.shared.words.grades import JOBS
from launch import queue
from launch.jobs import ANY_DEVICE, OUTPUT, Job, tail
from launch.queue import can_resume
from schemas import formats
from schemas.reading import get_number

TICK_SECONDS = 1.5
LEAST_FREE_BYTES = 1 << 16
"""With less room than this, a job that is started cannot even be noted."""
_WAITING_SHOWN = 3
_ENDED_SHOWN, _ENDED_FOLDED = 1, 12
_LINES_LIVE, _LINES_ENDED = 7, 40


def show(root: Path) -> None:
    """Draw the queue, and look again every moment as long as something is on its way."""
    active = any(not job.has_ended for job in reading.jobs())
    st.fragment(run_every=TICK_SECONDS if active else None)(_body)(root, was_active=active)


def _body(root: Path, *, was_active: bool) -> None:
    known = reading.jobs()
    active = [job for job in known if not job.has_ended]
    ended = [job for job in known if job.has_ended][::-1]
    if was_active and not active:
        st.rerun()
    waiting = [job for job in active if job.state == "waiting"]
    if waiting and not queue.has_worker(root):
        markup.note("The queue stands still: the machine or the queue's worker was stopped.")
        if may_operate() and st.button("Continue the queue", type="primary"):
            with trying("The queue could not be continued"):
                queue.start_worker(root)
                st.rerun()
    elif waiting and len(waiting) == len(active) and (free := _free_bytes(root)) < LEAST_FREE_BYTES:
        markup.note(
            f"Nothing is started: the disk of {root} is full, {formats.size(free)} are free. Make room there, "
            "and the queue continues by itself."
        )
    for job in active:
        if job not in waiting[_WAITING_SHOWN:]:
            _job(root, job, first_waiting=job in waiting[:1])
    if later := waiting[_WAITING_SHOWN:]:
        _draw_folded(root, later, "Waiting behind these", key="later")
    asked = st.query_params.get("job")
    shown = [job for job in ended if job.job_id == asked] + [job for job in ended if job.job_id != asked]
    for job in shown[:_ENDED_SHOWN]:
        _job(root, job, first_waiting=False)
    if earlier := shown[_ENDED_SHOWN:]:
        _draw_folded(root, earlier, "Ended before", key="ended", most=_ENDED_FOLDED)


def _free_bytes(root: Path) -> float:
    """Return the room on the disk of a root, without end where a user has just removed it: then nothing is full."""
    try:
        return shutil.disk_usage(root).free
    except OSError:
        return math.inf


@st.fragment
def _draw_folded(root: Path, some: Sequence[Job], title: str, *, key: str, most: int | None = None) -> None:
    """Draw jobs folded, so that the form stays where it can be seen; of more than `most` the first of them."""
    # Bound to the address, it stays open when its title has another number.
    folded = st.expander(f"{title}: {len(some):,}", on_change="rerun", key=key, bind="query-params")
    if folded.open:
        with folded:
            for job in some[:most]:
                _job(root, job, first_waiting=False)
            if most is not None and len(some) > most:
                markup.note(f"Not shown: {len(some) - most:,} earlier. Their runs are on the Runs page.")


def _job(root: Path, job: Job, *, first_waiting: bool) -> None:
    with st.container(border=True):
        with st.container(horizontal=True, vertical_alignment="center"):
            asked = markup.when(job.created_at, reading.reader_zone())
            line = f"{markup.sign(JOBS, job.state)} <b>{markup.safe(job.run)}</b>"
            more = f"{_device(job)}queued {asked}{_draw_message(job)}"
            st.html(f'<div class="tp-sub">{line} <span class="tp-dim">{more}</span></div>')
            with st.container(horizontal=True, width="content"):
                if (root / job.run).is_dir() and st.button(
                    "Open run", key=f"open {job.job_id}", icon=":material/show_chart:"
                ):
                    state.go(state.RUN, run=job.run)
                if may_operate():
                    _buttons(root, job, first_waiting=first_waiting)
        if job.state in {"running", "stopping"}:
            _progress(root, job)
        if job.state == "unsealed":
            markup.note(JOBS[job.state].meaning)  # A word that states little by itself.
        at_work = job.state in {"running", "stopping"}
        text = tail(job.folder / OUTPUT, lines=_LINES_LIVE if at_work else _LINES_ENDED)
        if text and at_work:
            st.code(text, language=None, wrap_lines=True)
        elif text:
            with st.expander(
                "Last output",
                expanded=(
                    job.state in {"failed", "refused", "lost"} or (job.exit_code is not None and job.exit_code < 0)
                ),
            ):
                st.code(text, language=None, wrap_lines=True)


def _draw_message(job: Job) -> str:
    said = course.describe(job) if job.has_ended else ""
    return f" · {said.rstrip('.')}" if said else ""


def _device(job: Job) -> str:
    return "" if job.device == ANY_DEVICE else f"on a {job.device.upper()} · "


def _buttons(root: Path, job: Job, *, first_waiting: bool) -> None:
    """Draw what an operator can do with a job."""
    key = job.job_id
    if job.state == "waiting":
        if not first_waiting and st.button("Earlier", key=f"up {key}", icon=":material/arrow_upward:"):
            with trying("It could not be moved"):
                queue.move_up(root, job)
                st.rerun()
        course.stop_button(job, key=f"remove {key}")
    if job.state == "running":
        course.stop_button(job, key=f"stop {key}")
    if job.state == "stopping":
        # It comes where Stop was: a second click there must not end what is being saved.
        with st.popover("Kill", icon=":material/dangerous:", key=f"before kill {key}"):
            markup.note(_KILL)
            if st.button("Kill it now", key=f"kill {key}", type="primary"):
                with trying("It could not be killed"):
                    queue.kill(job)
                    st.rerun()
    if job.has_ended:
        _again(root, job)


def _again(root: Path, job: Job) -> None:
    """Draw what goes on from a job that has ended."""
    key, run = job.job_id, root / job.run
    if (
        run.is_dir()
        and reading.continuation_of(job.run, reading.by_name(reading.summaries())) is None
        and can_resume(reading.run_of(run))
        and st.button("Resume", key=f"resume {key}", icon=":material/resume:", help=_RESUME)
    ):
        with trying("The run could not be resumed"):
            resumed = queue.resume(root, reading.run_of(run), after=job)
            state.go(state.RUN, run=resumed.run)
    if job.state != "succeeded" and st.button("Retry", key=f"retry {key}", icon=":material/replay:", help=_RETRY):
        with trying("It could not be tried again"):
            again = queue.retry(root, job)
            state.go(state.RUN, run=again.run)


_RESUME = "Continues from the newest checkpoint, as a new run that names this one."
_RETRY = "Queues the same configuration again, as a new run. The old run stays."
_KILL = "Ends the process at once. Rows written so far stay; nothing is sealed."


def _progress(root: Path, job: Job) -> None:
    folder = root / job.run
    course.line(job.run, job)
    planned = get_number(reading.run_of(folder).manifest, "training", "steps_planned") if folder.is_dir() else None
    if planned:
        st.progress(*headline.progress(reading.series_of(folder), planned))
