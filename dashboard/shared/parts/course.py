"""A run from the click that starts it to its seal: its stages, moving each second, and at its end what to do next."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import streamlit as st

from dashboard.shared.config import assignments, configs
from dashboard.shared.parts import markup
from dashboard.shared.parts.gate import may_operate
from dashboard.shared.parts.launching import trying
from dashboard.shared.session import reading, state
from dashboard.shared.tables.course import CourseStage, RunProgress, course
from dashboard.shared.words.grades import GRADES, JOBS, STATUSES
from dashboard.shared.words.text import plain, shorten
from evidence.compare.smoke import find_counterparts, find_full_runs
from evidence.index.summary import RunSummary
from evidence.layout import CONFIG, MANIFEST
from launch import queue
from launch.jobs import working
from launch.jobs.folder import OUTPUT, Job
from launch.jobs.output import tail
from schemas.reading import get_number, get_str, parse_time

TICK_SECONDS = 1.0
COMPILING = "compiling the programs of the run"
"""What a run prints last before it has a folder (`trainer.planning.run_plan`)."""
_FOLLOWED = "runs that were followed"
_LINES, _MOST_ORIGINALS = 12, 20
_TONES = {"done": "good", "now": "fair", "ahead": "quiet", "failed": "bad", "left out": "quiet"}
_SIGNS = {"done": "✓", "now": "▸", "ahead": "…", "failed": "✕", "left out": "–"}


def job_of(name: str) -> Job | None:
    """Return the newest job that writes a run; None: no job of this root does."""
    return max((job for job in reading.jobs() if job.run == name), key=lambda job: job.created_at, default=None)


def line(name: str, job: Job | None) -> None:
    """Draw the stages of a run."""
    items = "".join(map(_box, course(_progress_of(state.root() / name, job), time.time())))
    st.html(f'<ol class="tp-stages" aria-label="Stages of the run">{items}</ol>')


def before_its_folder(job: Job) -> None:
    """Draw a run that has no folder yet, and open it as soon as it has one."""
    _follow(job.run)
    st.fragment(run_every=None if job.has_ended else TICK_SECONDS)(_waiting)(job.run)


def of_run(summary: RunSummary, known: Mapping[str, RunSummary]) -> None:
    """Draw the stages of a run at work; of one that ended under this reader's eyes, how, and what can be done now."""
    name = summary.path.name
    if summary.status == "running":
        _follow(name)
        st.fragment(run_every=TICK_SECONDS)(_moving)(name)
    elif name in st.session_state.get(_FOLLOWED, ()):
        line(name, job_of(name))
        _draw_finished(summary, known)


def stop_button(job: Job, *, key: str | None = None) -> None:
    """Draw the button that takes a job out of the queue, or stops it."""
    label, told, done = ("Remove", _REMOVE, "removed") if job.state == "waiting" else ("Stop", _STOP, "stopped")
    is_asked = job.state == "stopping"
    if st.button("Stopping" if is_asked else label, icon=":material/stop:", disabled=is_asked, help=told, key=key):
        with trying(f"It could not be {done}"):
            queue.cancel(job)
            st.rerun()


_REMOVE = "Takes it out of the queue; it never starts."
_STOP = "Finishes the step, saves a checkpoint, seals the evidence and ends, as Ctrl-C does."


def _moving(name: str) -> None:
    if reading.run_of(state.root() / name).status != "running":
        reading.look_again()
        st.rerun()
    line(name, job_of(name))


def _waiting(name: str) -> None:
    job = job_of(name)
    if job is None or (state.root() / name / MANIFEST).is_file():
        reading.look_again()
        st.rerun()
    with st.container(horizontal=True, vertical_alignment="center"):
        with st.container():
            markup.heading(name, signs=markup.sign(JOBS, job.state), lines=[markup.safe(describe(job))])
        if may_operate() and not job.has_ended:
            stop_button(job)
        if st.button("Queue", icon=":material/play_circle:", help="Every job, and what can be done with it."):
            state.go(state.LAUNCH, job=job.job_id)
    line(name, job)
    if job.state == "waiting" and not working.is_worked_on(state.root()):
        markup.note("The queue stands still. The page of the queue says why, and continues it.")
    if text := tail(job.folder / OUTPUT, lines=_LINES):
        st.code(text, language=None, wrap_lines=True)


def describe(job: Job) -> str:
    """Return what is to be shown of a job besides its state; empty: nothing."""
    if job.state == "cancelled":
        return f"Stopped{' by you' if job.is_own else ''} before it began."
    if job.exit_code is None:
        return JOBS[job.state].meaning if job.has_ended or job.state == "waiting" else ""
    if job.state == "succeeded":
        return ""
    return f"Ended with exit code {job.exit_code}." if job.exit_code > 0 else f"Ended by signal {-job.exit_code}."


def _draw_finished(summary: RunSummary, known: Mapping[str, RunSummary]) -> None:
    name, ended = summary.path.name, summary.status or ""
    with st.container(border=True, horizontal=True, vertical_alignment="center", key="finished"):
        if ended == "succeeded":
            st.html(f'<p class="tp-answer">Finished: {markup.sign(GRADES, summary.grade, summary.coverage)}</p>')
        else:
            st.html(f'<p class="tp-answer">Ended: {markup.sign(STATUSES, ended)}</p>')
        compare_menu(summary, known, key="compare finished")
        config = reading.run_of(summary.path).config
        if summary.mode == "smoke" and config and st.button("Same again as full", icon=":material/fast_forward:"):
            rehearsed = [run.path for run in find_full_runs(summary, known.values())[:_MOST_ORIGINALS]]
            queued = job_of(name)
            asked = configs.read(configs.StartConfig(key="", path=queued.folder / CONFIG)) if queued else None
            state.go(state.LAUNCH, **assignments.full_of(config, name, rehearsed=rehearsed, asked=asked))
        if st.button("Package", icon=":material/inventory_2:", key="package finished"):
            state.go(state.PACKAGE, runs=[name])


_ANOTHER = "another run"
_LONGEST_NAME = 40


def compare_menu(summary: RunSummary, known: Mapping[str, RunSummary], *, key: str = "compare with") -> None:
    """Draw the menu; what is chosen stands first in the comparison, so that this run is compared with it."""
    name, others = summary.path.name, find_counterparts(summary, list(known.values()))
    options = {f"{what}: {shorten(plain(run.path.name), _LONGEST_NAME)}": run.path.name for what, run in others.items()}
    chosen = st.menu_button("Compare with …", [*options, _ANOTHER], key=key, icon=":material/compare_arrows:")
    if chosen is not None:
        state.go(state.COMPARE, runs=[*([] if chosen == _ANOTHER else [options[chosen]]), name])


def _follow(name: str) -> None:
    st.session_state[_FOLLOWED] = st.session_state.get(_FOLLOWED, frozenset()) | {name}


def _progress_of(folder: Path, job: Job | None) -> RunProgress:
    """Return what is known of a run."""
    told = RunProgress(events={})
    if job is not None:
        output, queued = job.folder / OUTPUT, parse_time(job.created_at)
        if not folder.is_dir() and COMPILING in tail(output):
            st.session_state.setdefault(f"compiling {job.job_id}", output.stat().st_mtime)
        told = RunProgress(
            queued=queued.timestamp() if queued else None,
            started=job.started.created if job.started else None,
            compiling=st.session_state.get(f"compiling {job.job_id}"),
            events={},
            status=job.state,
        )
    if not folder.is_dir():
        return told
    run, records = reading.run_of(folder), reading.log_of(folder).records
    planned = get_number(run.manifest, "training", "steps_planned")
    return replace(
        told,
        events={
            str(one.get("event")): at.timestamp() for one in records if (at := parse_time(get_str(one, "time") or ""))
        },
        compile_seconds=get_number(run.manifest, "result", "compile_seconds"),
        steps=None if planned is None else (reading.series_of(folder).last("step") or 0, planned),
        status=run.status,
    )


def _box(stage: CourseStage) -> str:
    here = ' aria-current="step"' if stage.state == "now" else ""
    return (
        f"<li{here}><b>{markup.safe(stage.name)}</b> "
        f'<span class="tp-{_TONES[stage.state]}">{_SIGNS[stage.state]} {markup.safe(stage.said)}</span></li>'
    )
