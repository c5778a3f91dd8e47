"""The progress of a run from its start to its end: stage, progress bar and last log line, and what to do next."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from pathlib import Path

import streamlit as st

from dashboard.shared import configs, reading, state
from dashboard.shared.parts import gate, markup
from dashboard.shared.parts.gate import may_operate, trying
from dashboard.shared.tables import headline
from dashboard.shared.words import GRADES, JOBS, STATUSES, glimpse, plain, shorten
from evidence.compare.smoke import State, find_counterparts, find_full_runs, find_smoke_runs
from evidence.index.summary import RunSummary
from evidence.layout import CONFIG, MANIFEST
from evidence.run import Run
from launch import queue
from launch.jobs import OUTPUT, Job, tail
from schemas.formats import duration
from schemas.reading import get_number, get_str, parse_time

TICK_SECONDS = 1.0
COMPILING = "compiling the programs of the run"
"""What a run prints last before it has a folder (`trainer.planning.run_plan`)."""
_FOLLOWED = "runs that were followed"
_MAX_FULL_RUNS, _MAX_LINE = 20, 300


def queued_job(name: str) -> Job | None:
    """Return the newest job that writes a run, or None."""
    return max((job for job in reading.jobs() if job.run == name), key=lambda job: job.created_at, default=None)


# Stages


def draw_stage(name: str, job: Job | None) -> None:
    """Draw the stage of a waiting or running run, its progress and its last log line."""
    folder = state.root() / name
    output = tail(job.folder / OUTPUT) if job is not None else ""
    started = job.started.created if job is not None and job.started else None
    if folder.is_dir():
        records = reading.load_log(folder).records
        title = _stage(folder, {record.get("event") for record in records})
        last = glimpse(str(records[-1].get("message", "")), _MAX_LINE) if records else ""
        at = parse_time(get_str(reading.load_run(folder).manifest, "started_at") or "")
        started = started or (at.timestamp() if at else None)
    else:
        title = "Compiling" if COMPILING in output else "Loading model and data" if started else "Waiting in the queue"
        last = output.rpartition("\n")[2]
    if job is not None and job.state == "stopping":
        title = "Stopping"
    elapsed = f", {_seconds(time.time() - started)} since start" if started else ""
    box = st.status(f"{title}{elapsed}", state="running", expanded=True)
    if folder.is_dir() and (planned := get_number(reading.load_run(folder).manifest, "training", "steps_planned")):
        box.progress(*headline.progress(reading.load_series(folder), planned))
    if last:
        with box.container():
            markup.note(last)


def _stage(folder: Path, events: Collection[object]) -> str:
    if "trained" in events:
        return "Evaluating"
    return "Training" if "compiled" in events or reading.load_series(folder).last("step") else "Compiling"


def _seconds(seconds: float) -> str:
    return duration(seconds) if seconds >= 59.5 else f"{max(0.0, seconds):.0f} s"


# The Run page


def before_its_folder(job: Job) -> None:
    """Draw a queued or starting run, and rerun the page when its folder appears."""
    _remember_running(job.run)
    st.fragment(run_every=None if job.has_ended else TICK_SECONDS)(_waiting)(job.run)


def draw_progress(summary: RunSummary, known: Mapping[str, RunSummary]) -> None:
    """Draw the progress of a running run, and the result of one that this reader saw end."""
    name = summary.path.name
    if summary.status == "running":
        _remember_running(name)
        st.fragment(run_every=TICK_SECONDS)(_moving)(name)
    elif name in st.session_state.get(_FOLLOWED, ()):
        _draw_finished(summary, known)


def _remember_running(name: str) -> None:
    st.session_state[_FOLLOWED] = st.session_state.get(_FOLLOWED, frozenset()) | {name}


def _moving(name: str) -> None:
    if reading.load_run(state.root() / name).status != "running":
        reading.look_again()
        st.rerun()
    draw_stage(name, queued_job(name))


def _waiting(name: str) -> None:
    job = queued_job(name)
    if job is None or (state.root() / name / MANIFEST).is_file():
        reading.look_again()
        st.rerun()
    with st.container(horizontal=True, vertical_alignment="center"):
        with st.container():
            markup.heading(name, signs=markup.sign(JOBS, job.state), lines=[markup.safe(describe(job))])
        if may_operate() and not job.has_ended:
            stop_button(job)
        if st.button("Queue", icon=":material/play_circle:", help="Show all jobs."):
            state.go(state.LAUNCH, job=job.job_id)
    if not job.has_ended:
        draw_stage(name, job)
    if job.state == "waiting" and not queue.has_worker(state.root()):
        markup.note("The queue is not running. Open it to continue.")
    if job.has_ended and (text := tail(job.folder / OUTPUT)):
        st.code(text, language=None, wrap_lines=True)


def _draw_finished(summary: RunSummary, known: Mapping[str, RunSummary]) -> None:
    name, status = summary.path.name, summary.status or ""
    with st.container(border=True, horizontal=True, vertical_alignment="center", key="finished"):
        succeeded = status == "succeeded"
        sign = markup.sign(GRADES, summary.grade, summary.coverage) if succeeded else markup.sign(STATUSES, status)
        st.html(f'<p class="tp-answer">{"Finished" if succeeded else "Ended"}: {sign}</p>')
        config = reading.load_run(summary.path).config
        if summary.mode == "smoke" and config and st.button("Set up the full run", icon=":material/fast_forward:"):
            full_runs = [run.path for run in find_full_runs(summary, known.values())[:_MAX_FULL_RUNS]]
            job = queued_job(name)
            queued = configs.read(configs.StartConfig(key="", path=job.folder / CONFIG)) if job else None
            state.go(state.LAUNCH, **configs.full_run_parameters(config, name, full_runs=full_runs, queued=queued))


# Buttons


def stop_button(job: Job, *, key: str | None = None) -> None:
    """Draw the button that removes a job from the queue, or stops it."""
    is_waiting, is_stopping = job.state == "waiting", job.state == "stopping"
    label = "Remove" if is_waiting else "Stopping" if is_stopping else "Stop"
    if st.button(label, icon=":material/stop:", disabled=is_stopping, help=_REMOVE if is_waiting else _STOP, key=key):
        with trying(f"The job could not be {'removed' if is_waiting else 'stopped'}"):
            queue.cancel(job)
            st.rerun()


_REMOVE = "Removes it from the queue before it starts."
_STOP = "Finishes the step, saves a checkpoint, finalizes the run and exits, like Ctrl-C."


def describe(job: Job) -> str:
    """Return why a job waits or how it ended; empty for a running or succeeded job."""
    if job.state == "cancelled":
        return f"Stopped{' by you' if job.is_own else ''} before it started."
    if job.exit_code is None:
        return JOBS[job.state].meaning if job.has_ended or job.state == "waiting" else ""
    if job.state == "succeeded":
        return ""
    return f"Ended with exit code {job.exit_code}." if job.exit_code > 0 else f"Ended by signal {-job.exit_code}."


_ANOTHER = "another run"
_MAX_NAME_LENGTH = 40


def compare_menu(summary: RunSummary, known: Mapping[str, RunSummary]) -> None:
    """Draw a menu of runs to compare this one with; the chosen run is the baseline."""
    name, others = summary.path.name, find_counterparts(summary, list(known.values()))
    options = {
        f"{what}: {shorten(plain(run.path.name), _MAX_NAME_LENGTH)}": run.path.name for what, run in others.items()
    }
    chosen = st.menu_button(
        "Compare with …", [*options, _ANOTHER], key="compare with", icon=":material/compare_arrows:"
    )
    if chosen is not None:
        state.go(state.COMPARE, runs=[*([] if chosen == _ANOTHER else [options[chosen]]), name])


TAB = "Smoke → TPU"
"""Tab of the Compare page that compares a smoke run with its full run."""
START = "Start the smoke run"

STATE_LABELS: Mapping[State, str] = {"passed": "✓ passed", "failed": "✕ failed", "not exercised": "– not tested"}
"""Symbol and word of each state of a stage."""


def card(summary: RunSummary, run: Run, known: Mapping[str, RunSummary]) -> None:
    """Draw the stages that the smoke run passed, or the button that starts one for a full run without."""
    is_smoke = summary.mode == "smoke"
    found = (find_full_runs if is_smoke else find_smoke_runs)(summary, known.values())
    if not found and (is_smoke or summary.mode != "full" or not summary.settings):
        return
    with st.container(border=True, horizontal=True, vertical_alignment="center", key="smoke_card"):
        if not found:
            markup.note("No smoke run with this configuration yet.")
            start_button(run)
            return
        smoke, full = (summary, found[0]) if is_smoke else (found[0], summary)
        check = reading.load_smoke_check(smoke.path, full.path)
        stages = " · ".join(f"{STATE_LABELS[stage.state][0]} {stage.name}" for stage in check.smoke_stages)
        markup.note(f"{check.summary} {stages}")
        if st.button(TAB, icon=":material/science:"):
            state.go(state.COMPARE, part=TAB, full=full.path.name, smoke=smoke.path.name)


def start_button(run: Run) -> None:
    """Draw the button that queues the smoke run of a run's configuration."""
    if run.config is not None and gate.may_operate() and st.button(START, icon=":material/science:", type="primary"):
        gate.start(configs.make_smoke_config(run.config))
