"""The progress of a run from its start to its end: stage, progress bar and last log line, and what to do next."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from functools import partial

import streamlit as st

from dashboard.shared import configs, reading, state
from dashboard.shared.configs import StartConfig
from dashboard.shared.files import read_log
from dashboard.shared.parts import gate, markup
from dashboard.shared.tables import headline
from dashboard.shared.words import JOBS, glimpse, plain, shorten
from evidence.compare.smoke import State, find_counterparts, find_full_runs, find_smoke_runs
from evidence.index.summary import RunSummary
from evidence.layout import CONFIG, LOG, MANIFEST
from evidence.run import Run
from launch import queue
from launch.jobs import OUTPUT, Job, tail
from launch.remote import describe_session
from schemas.formats import duration
from schemas.reading import get_number, get_str, parse_time

TICK_SECONDS = 1.0
COMPILING = "compiling the programs of the run"
"""What a run prints last before it has a folder (`trainer.planning.plan`)."""
_MAX_LINE = 300


def queued_job(name: str) -> Job | None:
    """Return the newest job that writes a run, or None."""
    return max((job for job in reading.jobs() if job.run == name), key=lambda job: job.created_at, default=None)


def draw_stage(name: str, job: Job | None) -> None:
    """Draw the stage of a waiting or running run, its progress and its last log line."""
    folder = state.root() / name
    output = tail(job.folder / OUTPUT) if job is not None else ""
    started = job.started.created if job is not None and job.started else None
    last, steps, series = output.rpartition("\n")[2], None, reading.load_series(folder)
    if folder.is_dir():
        records = read_log(folder / LOG).records
        events = {record.get("event") for record in records}
        is_training = "compiled" in events or series.last("step")
        title = "Evaluating" if "trained" in events else "Training" if is_training else "Compiling"
        last = glimpse(str(records[-1].get("message", "")), _MAX_LINE) if records else ""
        manifest = reading.load_run(folder).manifest
        at, steps = parse_time(get_str(manifest, "started_at") or ""), get_number(manifest, "training", "steps_planned")
        started = started or (at.timestamp() if at else None)
    else:
        title = "Compiling" if COMPILING in output else "Loading model and data" if started else "Waiting in the queue"
    if job is not None and (text := describe_session(job)):
        title = plain(text)
    if job is not None and job.state == "stopping":
        title = "Stopping"
    seconds = max(0.0, time.time() - (started or math.inf))
    elapsed = f", {duration(seconds) if seconds >= 59.5 else f'{seconds:.0f} s'} since start" if started else ""
    box = st.status(f"{title}{elapsed}", state="running", expanded=True)
    if steps:
        box.progress(*headline.progress(series, steps))
    if last:
        with box.container():
            markup.note(last)


def draw_running(name: str) -> None:
    """Draw the progress of a run that is running, and rerun the page when it ends."""
    if reading.load_run(state.root() / name).status != "running":
        reading.look_again()
        st.rerun()
    draw_stage(name, queued_job(name))


def draw_waiting(name: str) -> None:
    """Draw a queued or starting run, and rerun the page when its folder appears."""
    job = queued_job(name)
    if job is None or (state.root() / name / MANIFEST).is_file():
        reading.look_again()
        st.rerun()
    with st.container(horizontal=True, vertical_alignment="center"):
        with st.container():
            markup.heading(name, signs=markup.sign(JOBS, job.state), lines=[markup.safe(describe(job))])
        if not job.has_ended:
            draw_stop(job)
        if st.button("Queue", icon=":material/play_circle:", help="Show all jobs."):
            state.go(state.LAUNCH, job=job.job_id)
    if not job.has_ended:
        draw_stage(name, job)
    if job.state == "waiting" and not queue.has_worker(state.root()):
        markup.note("The queue is not running. Open it to continue.")
    if job.has_ended and (text := tail(job.folder / OUTPUT)):
        st.code(text, language=None, wrap_lines=True)


def draw_stop(job: Job, *, key: str | None = None) -> None:
    """Draw the button that removes a job from the queue, or stops it."""
    is_stopping = job.state == "stopping"
    label = "Stopping" if is_stopping else "Stop"
    about = "Finishes the step, saves a checkpoint, finalizes the run and exits, like Ctrl-C."
    if job.state == "waiting":
        label, about = "Remove", "Removes it from the queue before it starts."
    failed = f"The job could not be {'removed' if job.state == 'waiting' else 'stopped'}"
    cancel = partial(queue.cancel, job)
    gate.act(label, cancel, failed, icon=":material/stop:", disabled=is_stopping, help=about, key=key)


def describe(job: Job) -> str:
    """Return why a job waits or how it ended; empty for a running or succeeded job."""
    if job.state == "cancelled":
        return f"Stopped{' by you' if job.is_own else ''} before it started."
    if job.exit_code is None:
        return JOBS[job.state].meaning if job.has_ended or job.state == "waiting" else ""
    if job.state == "succeeded":
        return ""
    return f"Ended with exit code {job.exit_code}." if job.exit_code > 0 else f"Ended by signal {-job.exit_code}."


_MAX_NAME_LENGTH = 40


def draw_compare_menu(summary: RunSummary, known: Mapping[str, RunSummary]) -> None:
    """Draw a menu of runs to compare this one with; the chosen run is the baseline."""
    options: dict[str, list[str]] = {
        f"{what}: {shorten(plain(run.path.name), _MAX_NAME_LENGTH)}": [run.path.name]
        for what, run in find_counterparts(summary, list(known.values())).items()
    } | {"another run": []}
    chosen = st.menu_button("Compare with …", list(options), key="compare with", icon=":material/compare_arrows:")
    if chosen is not None:
        state.go(state.COMPARE, runs=[*options[chosen], summary.path.name])


TAB = "Smoke → TPU"  # tab of the Compare page that compares a smoke run with its full run
START = "Start the smoke run"

STATE_LABELS: Mapping[State, str] = {"passed": "✓ passed", "failed": "✕ failed", "not exercised": "– not tested"}
"""Symbol and word of each state of a stage."""


def draw_smoke_card(summary: RunSummary, run: Run, known: Mapping[str, RunSummary]) -> None:
    """Draw the stages that the smoke run passed, or how to start the run that is missing."""
    is_smoke = summary.mode == "smoke"
    found = (find_full_runs if is_smoke else find_smoke_runs)(summary, known.values())
    if summary.mode not in {"smoke", "full"} or not summary.settings:
        return
    with st.container(border=True, horizontal=True, vertical_alignment="center", key="smoke_card"):
        if not found:
            markup.note(f"No {'full' if is_smoke else 'smoke'} run with this configuration yet.")
            if not is_smoke:
                draw_smoke_button(run)
            elif run.config is not None and st.button("Set up the full run", icon=":material/fast_forward:"):
                job, name = queued_job(summary.path.name), summary.path.name
                queued = configs.read(StartConfig("", job.folder / CONFIG)) if job else None
                state.go(state.LAUNCH, **configs.full_run_parameters(run.config, name, queued=queued))
            return
        smoke, full = (summary, found[0]) if is_smoke else (found[0], summary)
        check = reading.load_smoke_check(smoke.path, full.path)
        stages = " · ".join(f"{STATE_LABELS[stage.state][0]} {stage.name}" for stage in check.smoke_stages)
        markup.note(f"{check.summary} {stages}")
        if st.button(TAB, icon=":material/science:"):
            state.go(state.COMPARE, part=TAB, full=full.path.name, smoke=smoke.path.name)


def draw_smoke_button(run: Run) -> None:
    """Draw the button that queues the smoke run of a run's configuration."""
    if run.config is not None and gate.may_operate() and st.button(START, icon=":material/science:", type="primary"):
        gate.start(configs.make_smoke_config(run.config))
