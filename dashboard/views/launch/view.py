"""The launch page: choose a configuration, change it, see what will run, start it; and the queue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import streamlit as st

from dashboard.shared.config import configs, form
from dashboard.shared.config.configs import StartConfig
from dashboard.shared.config.missing_names import absent
from dashboard.shared.config.settings import as_yaml
from dashboard.shared.parts import asking, config_form, gate, launching, markup, plan_answer, problems, source_box
from dashboard.shared.parts.asking import PlanQuestion
from dashboard.shared.session import reading, state
from dashboard.shared.tables import plan_time, planned
from dashboard.shared.words.text import plain
from dashboard.shared.words.verdicts import VERDICTS, verdict_at
from dashboard.views.launch.logic import several
from dashboard.views.launch.parts import jobs, what
from evidence.bundle.secrets import strip_invisible
from launch import tasks
from launch.jobs import CONFIG, LOCAL
from launch.places import PLACES
from launch.process import format_command
from schemas.problems import Problem
from schemas.reading import write_yaml
from schemas.validate import check_value

_WHOLE, _SMOKE = "every step", "two steps, as a smoke run"
_PLAN_NOW = "configuration to plan beside a run at work"
READ = PlanQuestion(options=tasks.CHECK, said="Reading the model and the rows")
HERE = (
    PlanQuestion(options=("--quick",), said="Estimating by formula", before=()),
    PlanQuestion(options=(), said="Asking the compiler"),
)
"""What is asked of a configuration for the device that it would run on here: the second answer is the surer one."""


def page() -> None:
    """Draw the page."""
    root = state.root()
    markup.heading("Launch", lines=["Runs keep going if you close this page."])
    gate.viewer_note()
    if reading.jobs():
        jobs.show(root)
        st.header("Start another run", anchor=False)
    source = _source()
    if source is None:
        markup.empty("No configuration found", f"None in {configs.SHIPPED}, and no run has one.")
        return
    start = configs.read(source)
    markup.step(1, "What is trained, on which rows")
    cards = st.container()
    form_side, result_side = st.columns([3, 2], gap="large")
    with form_side:
        config_form.read_address(source.key)
        edited = config_form.show(source.key, start)
        _name(source.key, start, edited)
    with result_side:
        markup.step(2, "Does it fit, and how long does it take")
        config = _chosen_config(edited)
        resolved = form.with_defaults(config)
        known = asking.answers(state.root(), resolved, (READ,))[READ.options].answer
        found, plan = _result(source.key, resolved, known, is_touched=resolved != form.with_defaults(start))
        below = st.container()
    with cards:
        what.show(source.key, form.with_defaults(edited), known)
    sound = not any(problem.severity == "error" for problem in found)
    force = gate.may_operate() and _start_bar(resolved, plan, sound=sound)
    with below:
        _same_in_a_terminal(resolved, force=force)


def _source() -> StartConfig | None:
    with st.container(horizontal=True, vertical_alignment="bottom"):
        source = source_box.choose()
        unused = source is not None and not reading.jobs() and gate.may_operate()
        if unused and st.button("Just start a smoke run", icon=":material/play_arrow:"):
            launching.start(configs.quick_smoke())
        if source is not None and st.button("Where else does it fit?", icon=":material/calculate:"):
            # Of the source the box there knows; a parameter that a box is bound to cannot be set.
            state.go(state.PLAN)
    return source


def _chosen_config(edited: Mapping[str, Any]) -> dict[str, Any]:
    """Draw whether the whole configuration is taken or its smoke run, and return the one that is."""
    rehearse = st.segmented_control(
        "Take",
        [_WHOLE, _SMOKE],
        default=_WHOLE,
        required=True,
        key="as",
        bind="query-params",
        help="Two steps of this very configuration, evaluation included, prove the pipeline: a smoke run.",
    )
    if rehearse != _SMOKE:
        return dict(edited)
    config = configs.smoke_of(edited)
    _draw_replaced(form.with_defaults(edited), form.with_defaults(config))
    return config


def _result(
    source: str, resolved: Mapping[str, Any], read: Mapping[str, Any] | None, *, is_touched: bool
) -> tuple[list[Problem], Mapping[str, Any] | None]:
    """Draw what the configuration needs and what is wrong with it.

    Returns:
        What is wrong with it, and its plan, or None if that is not known yet.
    """
    found = [*check_value(form.KIND, resolved, file=CONFIG), *absent(resolved, file=CONFIG)]
    sound = not any(problem.severity == "error" for problem in found)
    plan = _answer(resolved, sound=sound, is_touched=is_touched)
    if sound and read is not None:
        found += planned.problems(read)
    problems.show(found)
    if plan is not None:
        _details(plan, source, resolved)
    return found, plan


def _same_in_a_terminal(resolved: Mapping[str, Any], *, force: bool) -> None:
    """Draw the command that Start stands for, and the configuration."""
    name = f"{resolved.get('name', 'run')}.yaml"
    text = write_yaml(dict(resolved))
    st.caption(
        f"The same as Start, in a terminal in {plain(str(Path.cwd()))}, with the configuration below saved there"
    )
    st.code(strip_invisible(_command(name, force=force)), language=None, wrap_lines=True)
    markup.download("Configuration", text, name)
    with st.expander("The whole configuration", type="compact"):
        st.code(strip_invisible(text), language="yaml")


def _name(source: str, start: Mapping[str, Any], edited: Mapping[str, Any]) -> None:
    """Draw a button that names the run after what was changed, where the reader has not named it."""
    if (name := several.proposed_name(start, edited)) is not None:
        edits = {("name",): name}
        icon = ":material/edit:"
        st.button(f"Name it {plain(name)}", type="tertiary", icon=icon, on_click=config_form.put, args=(source, edits))


def _command(config: str, *, force: bool) -> str:
    """Return the command that Start stands for; both give the run's folder the time of the start as its ending."""
    forced = ["--force"] if force else []
    return format_command(["queue", "add", "--config", config, "--root", str(state.root()), *forced])


def _draw_replaced(edited: Mapping[str, Any], resolved: Mapping[str, Any]) -> None:
    """Draw which values of the form a smoke run replaces, so that nobody takes those of the form for what runs."""
    differing = form.differing_fields(edited, resolved)
    rows = [(field.title, as_yaml(before), as_yaml(after)) for field, before, after in differing]
    if rows:
        markup.table(["Setting", "In the form", "In the smoke run"], rows)


def _answer(resolved: Mapping[str, Any], *, sound: bool, is_touched: bool) -> Mapping[str, Any] | None:
    """Draw and return whether it fits on the device that it would run on; None: not known yet.

    A form that nobody has touched is not planned beside a run at work, which needs the processors.
    """
    root = state.root()
    known = asking.answers(root, resolved, (READ, *HERE))
    read = known[READ.options].answer
    # What cannot begin is not planned: the plan would find the same.
    questions = (READ,) if read is not None and read.get("can_begin") is False else (READ, *HERE)
    answered = [found.answer for one in HERE if (found := known[one.options]).answer is not None]
    with st.container(border=True):
        if answered and (plan := answered[-1]) is not None:
            plan_answer.head(plan)
        at_work = [job.run for job in reading.jobs() if not job.has_ended] or reading.at_work()
        if not at_work or is_touched or st.session_state.get(_PLAN_NOW) == resolved:
            asking.show(root, resolved, questions, key="launch", allowed=sound)
        elif not answered:
            markup.note(f"Not planned beside {at_work[0]}, which is at work here. Change the form, or plan it now.")
            if gate.may_operate() and st.button("Plan now", icon=":material/calculate:"):
                st.session_state[_PLAN_NOW] = resolved
                st.rerun()
    return answered[-1] if answered else None


def _start_bar(resolved: Mapping[str, Any], plan: Mapping[str, Any] | None, *, sound: bool) -> bool:
    """Draw starting; return whether the reader wants to start what may not fit."""
    with st.container(key="launch_start", horizontal=True, vertical_alignment="center"):
        said = "" if plan is None else markup.sign(VERDICTS, verdict_at(plan, "verdict"))
        needed = "" if plan is None else markup.safe(planned.need_in_words(plan))
        name = markup.safe(resolved.get("name", "run"))
        st.html(f'<p class="tp-step"><b>3</b>Start {name} {said} <span class="tp-dim">{needed}</span></p>')
        force = st.toggle("Start even if it may run out of memory", help="The run records that it was forced.")
        known = list(PLACES)
        place = st.selectbox("Where it runs", known, index=known.index(LOCAL)) if len(known) > 1 else LOCAL
        configs = _several(resolved)
        if st.button(
            "Start" if len(configs) == 1 else f"Start {len(configs)} runs",
            type="primary",
            icon=":material/play_arrow:",
            disabled=not sound or not configs,
            help=None if sound else "Fix the problems first.",
            shortcut="Ctrl+Enter",
        ):
            launching.start(*configs, force=force, place=place)
    return force


def _several(resolved: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Draw the values of one setting, and return a configuration for each; only the given one without such values."""
    fields = {field.dotted: field for field in several.variable()}
    with st.popover("Several runs", icon=":material/content_copy:"):
        name = st.selectbox("Setting", list(fields), index=list(fields).index("seed"), key="over", bind="query-params")
        written = st.text_input("Values", placeholder="0, 1, 2", help=_VALUES, key="values", bind="query-params")
        if not (written or "").strip():
            return [resolved]
        configs, wrong = several.over(resolved, fields[name], written)
        said = [several.sentence(wrong, fields[name])] if wrong else []
        if len(configs) > several.MOST:
            said.append(f"{len(configs)} values are given; one click starts at most {several.MOST}.")
        found = [one for config in configs[: several.MOST] for one in check_value(form.KIND, config, file=CONFIG)]
        said += [problem.what for problem in found if problem.severity == "error"]
        for line in said:
            markup.note(line)
        markup.note(", ".join(str(config["name"]) for config in configs[: several.MOST]))
        return [] if said else configs


_VALUES = (
    "Separated by commas, each as in YAML. Each value is a run of its own, named after it; they wait in the queue."
)


def _details(plan: Mapping[str, Any], source: str, resolved: Mapping[str, Any]) -> None:
    """Draw what the memory and the time are for, and what to change."""
    plan_answer.advice(plan, source=source, config=resolved)
    plan_answer.findings(plan)
    plan_answer.memory_picture(plan, key="launch_memory")
    plan_answer.largest_parts(plan)
    if plan_time.parts(plan):
        plan_answer.session_picture(plan, key="launch_session")


page()
