"""The Run page: documents, grade, main figures and tabs of one run, updated while it is running."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import streamlit as st

from dashboard.shared import configs, reading, state
from dashboard.shared.charts import foreign_run
from dashboard.shared.parts import curves, gate, markup, progress, replay, run_box
from dashboard.shared.parts.run_box import choose_run
from dashboard.shared.tables import headline
from dashboard.shared.words import GRADES, STATUSES
from dashboard.views.run import answers, sections
from evidence import layout
from evidence.imports.run import ImportedRun
from evidence.index.summary import RunSummary
from evidence.layout import ANSWERS_OVER_STEPS, CONFIG, METRICS, PROFILE, ROLLOUTS
from evidence.report import withhold_faulty_figures
from evidence.rules.plausibility import score_caveats
from evidence.run import Run
from evidence.scores.recompute import describe_format_losses, describe_run_gain
from launch import queue
from launch.queue import can_resume
from launch.remote import session_address
from schemas.formats import count, quantity, tally
from schemas.reading import get_number, get_path, get_str

TICK_SECONDS = 2.0
_LAST = "last run shown"


def page() -> None:
    """Draw the page."""
    known = reading.by_name(reading.summaries())
    job = progress.queued_job(st.query_params.get("run", ""))
    if job is not None and job.run not in known:
        tick = None if job.has_ended else progress.TICK_SECONDS
        st.fragment(run_every=tick)(progress.draw_waiting)(job.run)
        return
    if not known:
        markup.heading("Run")
        markup.empty("No runs yet", "Start a smoke run. It takes seconds and fills every page.")
        gate.smoke_button()
        return
    name = _choose_run(known)
    if name is None:
        return
    summary = known[name]
    if not reading.are_as_judged([summary]):
        markup.heading(name)
        return
    run = reading.load_run(summary.path)
    _draw_head(name, run, known)
    running = summary.status == "running"
    if running:
        st.fragment(run_every=progress.TICK_SECONDS)(progress.draw_running)(name)
    sections.draw_evidence(summary, run)
    progress.draw_smoke_card(summary, run, known)
    st.fragment(run_every=TICK_SECONDS if running else None)(_draw_tabs)(name, known, was_running=running)


def _choose_run(known: Mapping[str, RunSummary]) -> str | None:
    """Return the run in the URL, the last one shown, or the only one; otherwise draw a choice and return None."""
    name = st.query_params.get("run")
    last: str | None = next(iter(known)) if len(known) == 1 else st.session_state.get(_LAST)
    if name is None and last is not None and last in known:
        name = st.query_params["run"] = last
    if name in known:
        st.session_state[_LAST] = name
        return name
    markup.heading("Run")
    if name is not None:
        markup.note(f"There is no run {name} in {state.root()}.")
    picked = choose_run(known)
    if picked is not None:
        state.go(state.RUN, run=picked)
    return None


def _draw_tabs(name: str, known: Mapping[str, RunSummary], *, was_running: bool) -> None:
    folder = known[name].path
    # Selecting a tab reruns only this fragment, but the grade above must not outlive the files that it is based on.
    if reading.changed_runs([known[name]]):
        st.rerun()
    run = reading.load_run(folder)
    if was_running and run.status != "running":
        reading.look_again()
        st.rerun()
    view = run.foreign()
    if view is None:
        _draw_figures(run)
    else:
        markup.figures(foreign_run.figures(view))
    tabs = _tabs(name, run, view, known, running=was_running)
    for tab, draw in zip(st.tabs(list(tabs), key="view", bind="query-params"), tabs.values(), strict=True):
        if tab.open:
            with tab:
                draw()


def _draw_figures(run: Run) -> None:
    series = reading.load_series(run.path)
    facts, withheld = withhold_faulty_figures(run, reading.check(run.path).findings)
    manifest = (run.manifest or {}) | {"result": (facts.manifest or {}).get("result")}
    is_sound = METRICS not in facts.withheld
    markup.figures(headline.figures(manifest, facts.eval_summary, run.plan, series, is_sound=is_sound))
    remarks = (describe_run_gain(facts.eval_summary), *(remark for _, remark in score_caveats(facts.eval_summary)))
    sentences = [f"{remark[0].upper()}{remark[1:]}." for remark in remarks if remark]
    for sentence in (*sentences, *describe_format_losses(facts.eval_summary, facts.log), *withheld):
        markup.note(sentence)


def _tabs(
    name: str, run: Run, view: ImportedRun | None, known: Mapping[str, RunSummary], *, running: bool
) -> Mapping[str, Callable[[], None]]:
    """Return the functions that draw the tabs, by title. Runs of other tools have fewer tabs."""
    first: dict[str, Callable[[], None]] = {"Curves": lambda: _draw_curves(name, run, known, running=running)}
    last: dict[str, Callable[[], None]] = {
        "Files": lambda: sections.draw_files(run),
        "Problems": lambda: sections.draw_problems(run.path),
    }
    if view is not None:
        return {
            **first,
            "Sources": lambda: sections.draw_sources(view),
            "Predictions": lambda: answers.draw_predictions(foreign_run.prediction_rows(view), None),
            **last,
        }
    if ROLLOUTS in run.files:
        first["Roll-outs"] = lambda: answers.draw_rollouts(run)
    return {
        **first,
        "Plan": lambda: sections.draw_plan(run),
        "Configuration": lambda: sections.draw_configuration(run),
        "Examples": lambda: sections.draw_examples(run),
        "Predictions": lambda: _draw_predictions(run),
        "Play": lambda: answers.draw_play(run, known),
        "Log": lambda: sections.draw_log(run.path, following=running),
        "Reproduce": lambda: replay.draw_reproduce(run),
        **last,
    }


def _draw_predictions(run: Run) -> None:
    summary = withhold_faulty_figures(run, reading.check(run.path).findings)[0].eval_summary
    answers.draw_predictions(run.rows(layout.PREDICTIONS).values, summary)
    answers.draw_answers_over_steps(run.rows(ANSWERS_OVER_STEPS).values)


def _draw_head(name: str, run: Run, known: Mapping[str, RunSummary]) -> None:
    summary = known[name]
    started, commit = summary.started_at, get_str(run.manifest, "code", "commit")
    facts = [
        summary.model,
        f"{summary.method} fine-tuning" if summary.method else None,
        summary.device,
        f"{summary.mode} run" if summary.mode else None,
        markup.Safe(f"started {markup.when(started, reading.browser_timezone())}") if started else None,
        f"code {commit[:10]}" if commit else None,
    ]
    # Of a running run the folder knows more than the list; the status of another tool's run is only in the list.
    status = run.status or summary.status
    severities = Counter(problem.severity for problem in reading.check(run.path).findings)
    problems = ", ".join(quantity(severities[name], name) for name in ("error", "warning") if severities[name])
    signs = markup.sign(GRADES, summary.grade, summary.coverage) + (markup.sign(STATUSES, status) if status else "")
    continuation = reading.find_continuation(name, known)
    may_resume = continuation is None and can_resume(run) and gate.may_operate()
    lines = [
        " · ".join(fact if isinstance(fact, markup.Safe) else markup.safe(fact) for fact in facts if fact),
        _describe_session(run),
        markup.safe(_describe_end(run, may_resume=may_resume)),
        f"Tags: {markup.safe(', '.join(summary.tags))}" if summary.tags else "",
        f"Note: {markup.safe(summary.note)}" if summary.note else "",
        "Archived, so hidden from the list of runs. Nothing was deleted." if summary.archived else "",
    ]
    with st.container(horizontal=True, vertical_alignment="center"):
        with st.container():
            markup.heading(name, signs=f'{signs}<span class="tp-dim">{problems}</span>', lines=lines)
        _draw_buttons(name, run, known, continuation, may_resume=may_resume)


def _describe_session(run: Run) -> str:
    """Describe as HTML which place ran a run on which devices, and whether its log confirms the bundle."""
    place, session = get_path(run.manifest, "place") or {}, run.session or {}
    name, reference = session.get("place") or place.get("name"), session.get("reference")
    if name is None:
        return ""
    facts = [f"Ran at {markup.safe(name)}"]
    if address := session_address(name, reference):
        facts.append(markup.link(str(reference), address))
    if place:
        asked, given = tally(place["requested"]), tally(place["received"])
        facts.append(markup.safe(f"{given}, as requested" if asked == given else f"{given}; requested were {asked}"))
    if session:
        log = "its log states the hash" if session["is_in_log"] else "its log does not state the hash"
        facts.append(f"{log} of the bundle" if session["bundle_sha256"] else "stopped before it packed a bundle")
    return " · ".join(facts)


def _describe_end(run: Run, *, may_resume: bool) -> str:
    """Describe how a run failed or was stopped; empty if it succeeded or is running."""
    message = get_str(run.manifest, "exit", "message")
    if message is None or run.status in {"succeeded", "running"}:
        return ""
    if not message.startswith("signal SIGINT"):
        return f"Ended with: {message}"
    step = get_number(run.manifest, "training", "steps_done")
    at = f" at step {count(step)}" if step else " before the first step"
    before = ", before the evaluation" if "evaluation" in message else ""
    return f"Stopped by a user{at}{before}." + (" Resume continues from there." if may_resume else "")


def _draw_buttons(
    name: str, run: Run, known: Mapping[str, RunSummary], continuation: str | None, *, may_resume: bool
) -> None:
    with st.container(horizontal=True, width="content"):
        if may_resume:
            gate.act(
                "Resume",
                lambda: state.go(state.RUN, run=queue.resume(state.root(), run).run),
                "The run could not be resumed",
                icon=":material/resume:",
                type="primary",
            )
        about = "Open the run that continues this one."
        if continuation is not None and st.button("Continuation", icon=":material/arrow_forward:", help=about):
            state.go(state.RUN, run=continuation)
        job = progress.queued_job(name)
        if run.status == "running" and job is not None and not job.has_ended:
            progress.draw_stop(job)
        *_, sweep, _ = ("", "", *Path(get_str(run.config, "evaluation", "eval_set") or "").parts)
        if sweep in state.sweep_names() and st.button("Sweep", icon=state.SWEEP.icon, help="Open all its trials."):
            state.go(state.SWEEP, sweep=sweep)
        about = "Open the Launch page with this configuration."
        if CONFIG in run.files and st.button("Edit and rerun", icon=":material/edit:", help=about):
            state.go(state.LAUNCH, source=configs.same_as(name))
        if gate.may_operate() and st.button("Tags and note", icon=":material/sell:"):
            run_box.edit([known[name]])
        progress.draw_compare_menu(known[name], known)
        if st.button("Package", icon=":material/inventory_2:"):
            state.go(state.PACKAGE, runs=[name])
        run_box.draw_share([run.path])


def _draw_curves(name: str, run: Run, known: Mapping[str, RunSummary], *, running: bool) -> None:
    line, remark = curves.load_line(name, run, known)
    if not line.rows:
        if running:
            markup.empty("No metrics yet", "The first row comes with the first step, after compiling.")
        else:
            markup.empty("No metrics", "No metrics of this run can be read. The tab Problems says why.")
        return
    curves.draw_curves([line], key="run_curves", name=name)
    if remark:
        markup.note(remark)
    if (run.path / PROFILE).is_dir():
        markup.note(f"Profile: {run.path / PROFILE}; TensorBoard and XProf show it.")
    sections.draw_machine(run)
    if line.series.unread:
        markup.note(f"Not drawn: {quantity(line.series.unread, 'line')} of metrics.jsonl that cannot be read.")


page()
