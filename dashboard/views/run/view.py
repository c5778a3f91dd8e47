"""The run page: one run from its headline down to its last token, and live while it is at work."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import streamlit as st

from dashboard.shared.charts import foreign_run
from dashboard.shared.config import configs
from dashboard.shared.parts import course, curves, freshness, gate, launching, markup, notes_dialog, rehearsed, share
from dashboard.shared.parts.launching import trying
from dashboard.shared.parts.lines import line_of
from dashboard.shared.parts.run_box import choose_run
from dashboard.shared.reading.series import Series
from dashboard.shared.session import playing, reading, state
from dashboard.shared.tables import headline
from dashboard.shared.words.grades import GRADES, STATUSES
from dashboard.views.run.logic import ending
from dashboard.views.run.parts import evidence, log, play, predictions, rollouts, sections
from evidence import layout
from evidence.imports.run import ImportedRun
from evidence.index.summary import RunSummary
from evidence.layout import ANSWERS_OVER_STEPS, CONFIG, METRICS, PROFILE, ROLLOUTS, SYSTEM
from evidence.report import trace
from evidence.rules.plausibility import score_caveats
from evidence.run import Run
from evidence.scores.recompute import describe_form_losses, describe_run_gain
from launch import queue
from launch.resuming import can_resume
from schemas.formats import quantity
from schemas.reading import get_number, get_str

TICK_SECONDS = 2.0
_LAST = "run looked at last"


def page() -> None:
    """Draw the page."""
    known = reading.by_name(reading.summaries())
    asked = course.job_of(st.query_params.get("run", ""))
    if asked is not None and asked.run not in known:
        course.before_its_folder(asked)
        return
    if not known:
        markup.heading("Run")
        markup.empty("No runs yet", "Start one: a smoke run takes seconds and fills every page.")
        launching.smoke_button()
        return
    name = _choose_run(known)
    if name is None:
        return
    summary = known[name]
    if not freshness.are_as_judged([summary]):
        markup.heading(name)
        return
    run = reading.run_of(summary.path)
    _head(name, run, known)
    course.of_run(summary, known)
    evidence.strip(summary, run)
    rehearsed.card(summary, run, known)
    running = summary.status == "running"
    # While the run is at work the page looks again every few seconds; when it has ended, its folder alone is watched.
    st.fragment(run_every=TICK_SECONDS if running else None)(_body)(name, known, was_running=running)


def _choose_run(known: Mapping[str, RunSummary]) -> str | None:
    """Return the run that the address names, else the one looked at last, or the only one; else a choice."""
    asked = st.query_params.get("run")
    before: str | None = next(iter(known)) if len(known) == 1 else st.session_state.get(_LAST)
    if asked is None and before is not None and before in known:
        asked = st.query_params["run"] = before
    if asked in known:
        st.session_state[_LAST] = asked
        return asked
    markup.heading("Run")
    if asked is not None:
        markup.note(f"There is no run {asked} in {state.root()}.")
    picked = choose_run(known)
    if picked is not None:
        state.go(state.RUN, run=picked)
    return None


def _body(name: str, known: Mapping[str, RunSummary], *, was_running: bool) -> None:
    folder = known[name].path
    # A tab draws this part alone: the verdict above it must not outlive what it was found in.
    if reading.changed_runs([known[name]]):
        st.rerun()
    run = reading.run_of(folder)
    if was_running and run.status != "running":
        reading.look_again()
        st.rerun()
    view = run.foreign()
    if view is None:
        series = reading.series_of(folder)
        _figures(run, series)
        planned = get_number(run.manifest, "training", "steps_planned")
        if was_running and planned:
            st.progress(*headline.progress(series, planned))
    else:
        markup.figures(foreign_run.figures(view))
    tabs = _sections(name, run, view, known, running=was_running)
    drawn = st.tabs(list(tabs), key="view", bind="query-params")
    for title, tab in zip(tabs, drawn, strict=True):
        if tab.open:
            with tab:
                tabs[title]()
        elif title == "Play":
            playing.leave()


def _figures(run: Run, series: Series) -> None:
    """Draw the headline, and which figures are not in it although the run states them."""
    facts, withheld = _facts(run)
    manifest = (run.manifest or {}) | {"result": (facts.manifest or {}).get("result")}
    is_sound = METRICS not in facts.withheld
    markup.figures(headline.figures(manifest, facts.eval_summary, run.plan, series, is_sound=is_sound))
    caveats = (said for _, said in score_caveats(facts.eval_summary))
    for said in filter(None, (describe_run_gain(facts.eval_summary), *caveats)):
        markup.note(f"{said[0].upper()}{said[1:]}.")
    for sentence in describe_form_losses(facts.eval_summary, facts.log):
        markup.note(sentence)
    if withheld:
        markup.note(" ".join(withheld))


def _facts(run: Run) -> tuple[Run, Sequence[str]]:
    """Return what may be shown of a run, and which figures may not although the run states them."""
    return trace(run, reading.check(run.path).findings)


def _sections(
    name: str, run: Run, view: ImportedRun | None, known: Mapping[str, RunSummary], *, running: bool
) -> Mapping[str, Callable[[], None]]:
    """Return the tabs of a run; what another tool wrote has sources where ours has documents."""
    first: dict[str, Callable[[], None]] = {"Curves": lambda: _curves(name, run, known, running=running)}
    last: dict[str, Callable[[], None]] = {
        "Files": lambda: sections.files(run),
        "Problems": lambda: sections.problems(run.path),
    }
    if view is not None:
        answers = foreign_run.prediction_rows(view)
        return {
            **first,
            "Sources": lambda: sections.sources(view),
            "Predictions": lambda: predictions.section(answers, None),
            **last,
        }
    drawn = {"Roll-outs": lambda: rollouts.section(run)} if ROLLOUTS in run.files else {}
    return {
        **first,
        **drawn,
        "Plan": lambda: sections.plan(run),
        "Configuration": lambda: sections.configuration(run),
        "Examples": lambda: sections.examples(run),
        "Predictions": lambda: _predictions(run),
        "Play": lambda: play.section(run, known),
        "Log": lambda: log.section(run.path, following=running),
        "Repeat": lambda: sections.repeat(run),
        "Recipe": lambda: sections.reproduction(run),
        **last,
    }


def _predictions(run: Run) -> None:
    predictions.section(run.rows(layout.PREDICTIONS).values, _facts(run)[0].eval_summary)
    predictions.over_steps(run.rows(ANSWERS_OVER_STEPS).values)


def _head(name: str, run: Run, known: Mapping[str, RunSummary]) -> None:
    summary = known[name]
    started, commit = summary.started_at, get_str(run.manifest, "code", "commit")
    facts = [
        summary.model,
        f"{summary.method} fine-tuning" if summary.method else None,
        summary.device,
        f"{summary.mode} run" if summary.mode else None,
        markup.Safe(f"started {markup.when(started, reading.reader_zone())}") if started else None,
        f"code {commit[:10]}" if commit else None,
    ]
    # While a run is at work its folder knows more than the list; of another tool's run only the list knows it.
    status = run.status or summary.status
    signs = markup.sign(GRADES, summary.grade, summary.coverage) + (markup.sign(STATUSES, status) if status else "")
    if summary.problem_count:
        signs += f'<span class="tp-dim">{quantity(summary.problem_count, "problem")}</span>'
    said = [" · ".join(fact if isinstance(fact, markup.Safe) else markup.safe(fact) for fact in facts if fact)]
    continuation = reading.continuation_of(name, known)
    may_resume = continuation is None and can_resume(run) and gate.may_operate()
    if ended := ending.describe(run, may_resume=may_resume):
        said.append(markup.safe(ended))
    said += [markup.safe(words) for words in _notes_of(summary)]
    with st.container(horizontal=True, vertical_alignment="center"):
        with st.container():
            markup.heading(name, signs=signs, lines=said)
        _buttons(name, run, known, continuation, may_resume=may_resume)


def _notes_of(summary: RunSummary) -> Iterator[str]:
    """Yield what a user wrote about the run, each kind in a line."""
    if summary.tags:
        yield f"Tags: {', '.join(summary.tags)}"
    if summary.note:
        yield f"Note: {summary.note}"
    if summary.archived:
        yield "Archived: not in the list. Nothing is deleted."


def _buttons(
    name: str, run: Run, known: Mapping[str, RunSummary], continuation: str | None, *, may_resume: bool
) -> None:
    with st.container(horizontal=True, width="content"):
        if may_resume and st.button("Resume", icon=":material/resume:", type="primary"):
            with trying("The run could not be resumed"):
                job = queue.resume(state.root(), run)
                state.go(state.RUN, run=job.run)
        if continuation is not None and st.button("Continuation", icon=":material/arrow_forward:", help=_CONTINUED):
            state.go(state.RUN, run=continuation)
        doing = course.job_of(name)
        if run.status == "running" and doing is not None and not doing.has_ended and gate.may_operate():
            course.stop_button(doing)
        has_config = CONFIG in run.files
        if has_config and st.button("Same again, but …", icon=":material/edit:", help=_AGAIN):
            state.go(state.LAUNCH, source=configs.same_as(name))
        if gate.may_operate() and st.button("Tags and note", icon=":material/sell:"):
            notes_dialog.edit([known[name]])
        course.compare_menu(known[name], known)
        if st.button("Package", icon=":material/inventory_2:"):
            state.go(state.PACKAGE, runs=[name])
        share.button([run.path])


_AGAIN = "Open the Launch page with this configuration."
_CONTINUED = "Open the run that continues this one from its last checkpoint."


def _curves(name: str, run: Run, known: Mapping[str, RunSummary], *, running: bool) -> None:
    line, remark = line_of(name, run, known)
    if not line.rows:
        if running:
            markup.empty("No metrics yet", "The first row comes with the first step, after compiling.")
        else:
            markup.empty("No metrics", "No metrics of this run can be read. The tab Problems says why.")
        return
    has_file = METRICS in run.files
    curves.show(
        [line], key="run_curves", name=name, beside=(lambda: sections.metrics_download(run.path)) if has_file else None
    )
    if remark:
        markup.note(remark)
    if (run.path / PROFILE).is_dir():
        markup.note(f"Profile: {run.path / PROFILE}; TensorBoard and XProf show it.")
    if SYSTEM in run.files:
        sections.machine(run)
    if line.series.unread:
        markup.note(f"Not drawn: {quantity(line.series.unread, 'line')} of metrics.jsonl that cannot be read.")


page()
