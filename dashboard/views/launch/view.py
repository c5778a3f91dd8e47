"""The Launch page: the queue, the configuration form, its plan, and the start button."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import streamlit as st

from dashboard.shared.config import configs, form
from dashboard.shared.config.configs import StartConfig
from dashboard.shared.config.form import FormField, as_yaml
from dashboard.shared.parts import asking, config_form, gate, launching, markup, plan_answer, problems, source_box
from dashboard.shared.parts.asking import PlanQuestion
from dashboard.shared.session import reading, state
from dashboard.shared.tables import planned
from dashboard.shared.words.text import plain
from dashboard.shared.words.verdicts import VERDICTS, verdict_at
from dashboard.views.launch import jobs, what
from evidence.bundle.secrets import strip_invisible
from launch import tasks
from launch.jobs import LOCAL
from launch.places import PLACES
from launch.process import format_command
from schemas.problems import Problem
from schemas.reading import write_yaml

_FULL, _SMOKE = "Full run", "Smoke test (2 steps)"
READ = PlanQuestion(options=tasks.CHECK, label="Loading the model and the data")
HERE = (
    PlanQuestion(options=("--quick",), label="Estimating from formulas"),
    PlanQuestion(options=(), label="Compiling", button="Compile"),
)
"""Plans for this machine; the second one is more exact."""

MAX_VARIANTS = 32
"""Runs that one click can queue."""
_MAX_NAME_LENGTH = 58


def page() -> None:
    """Draw the page."""
    root = state.root()
    markup.heading("Launch", lines=["Runs keep going if you close this page."])
    gate.viewer_note()
    if reading.jobs():
        jobs.show_queue(root)
        st.header("Start another run", anchor=False)
    source = _source()
    if source is None:
        markup.empty("No configuration found", f"None in {configs.SHIPPED}, and no run has one.")
        return
    start = configs.read(source)
    form_side, result_side = st.columns([3, 2], gap="large")
    with form_side:
        markup.step(1, "Configuration")
        config_form.read_address(source.key)
        edited = config_form.show(source.key, start)
        config_form.write_address(start, edited)
        _name_button(source.key, start, edited)
        facts = st.container()
    with result_side:
        markup.step(2, "Memory and time")
        resolved = form.with_defaults(_full_or_smoke(edited))
        checked = asking.answers(root, resolved, (READ,))[READ.options].answer
        found = form.problems(resolved)
        is_valid = not any(problem.severity == "error" for problem in found)
        plan = _plan(resolved, checked, is_valid=is_valid)
        if is_valid and checked is not None:
            found += planned.problems(checked)
        problems.show(found)
        if plan is not None:
            plan_answer.advice(plan, source=source.key, config=resolved)
            plan_answer.findings(plan)
            plan_answer.memory_picture(plan, key="launch_memory")
            plan_answer.largest_parts(plan)
            if planned.time_parts(plan):
                plan_answer.session_picture(plan, key="launch_session")
        below = st.container()
    with facts:
        what.show_data(source.key, checked)
    force = gate.may_operate() and _start_bar(resolved, plan, found)
    with below:
        _command(resolved, force=force)


def _source() -> StartConfig | None:
    with st.container(horizontal=True, vertical_alignment="bottom"):
        source = source_box.choose()
        is_new = source is not None and not reading.jobs() and gate.may_operate()
        if is_new and st.button("Start a smoke test now", icon=":material/play_arrow:"):
            launching.start(configs.quick_smoke())
        if source is not None and st.button("Where else does it fit?", icon=":material/calculate:"):
            state.go(state.PLAN)  # its source box shows the same source
    return source


def _name_button(source: str, start: Mapping[str, Any], edited: Mapping[str, Any]) -> None:
    """Offer to name the run after its first change, unless the reader has named it."""
    changed = form.differing_fields(form.with_defaults(start), form.with_defaults(edited))
    if changed and all(setting.path != ("name",) for setting, *_ in changed):
        setting, _, value = changed[0]
        name = name_variant(start, setting, value)
        st.button(
            f"Name it {plain(name)}",
            type="tertiary",
            icon=":material/edit:",
            on_click=config_form.put,
            args=(source, {("name",): name}),
        )


def _full_or_smoke(edited: Mapping[str, Any]) -> dict[str, Any]:
    mode = st.segmented_control(
        "Run",
        [_FULL, _SMOKE],
        default=_FULL,
        required=True,
        key="as",
        bind="query-params",
        help="A smoke test runs two steps of this configuration with its evaluation, to test the pipeline.",
    )
    if mode != _SMOKE:
        return dict(edited)
    smoke = configs.smoke_of(edited)
    differing = form.differing_fields(form.with_defaults(edited), form.with_defaults(smoke))
    markup.table(
        ["Setting", "In the form", "In the smoke test"],
        [(setting.title, as_yaml(before), as_yaml(after)) for setting, before, after in differing],
    )
    return smoke


def _plan(
    resolved: Mapping[str, Any], checked: Mapping[str, Any] | None, *, is_valid: bool
) -> Mapping[str, Any] | None:
    """Draw the plan for this machine, and return it if it is known."""
    known = asking.answers(state.root(), resolved, HERE)
    plans = [plan for question in HERE if (plan := known[question.options].answer) is not None]
    # A configuration that cannot start is not planned: the plan would find the same problems.
    questions = (READ,) if checked is not None and checked.get("can_begin") is False else (READ, *HERE)
    with st.container(border=True):
        if plans:
            plan_answer.head(plans[-1])
        asking.show(state.root(), resolved, questions, key="launch", allowed=is_valid)
    return plans[-1] if plans else None


def _start_bar(resolved: Mapping[str, Any], plan: Mapping[str, Any] | None, found: Sequence[Problem]) -> bool:
    """Draw the start button; return whether to start even if memory is too small."""
    is_valid = not any(problem.severity == "error" for problem in found)
    with st.container(key="launch_start", horizontal=True, vertical_alignment="center"):
        sign = "" if plan is None else markup.sign(VERDICTS, verdict_at(plan, "verdict"))
        need = "" if plan is None else markup.safe(planned.need_in_words(plan))
        name = markup.safe(resolved.get("name", "run"))
        st.html(f'<p class="tp-step"><b>3</b>Start {name} {sign} <span class="tp-dim">{need}</span></p>')
        force = st.toggle("Start even if memory may run out", help="The run records that it was forced.")
        places = list(PLACES)
        place = st.selectbox("Where to run", places, index=places.index(LOCAL)) if len(places) > 1 else LOCAL
        variants = _variants(resolved)
        if st.button(
            "Start" if len(variants) == 1 else f"Start {len(variants)} runs",
            type="primary",
            icon=":material/play_arrow:",
            disabled=not is_valid or not variants,
            help=None if is_valid else "Fix the problems first.",
            shortcut="Ctrl+Enter",
        ):
            launching.start(*variants, force=force, place=place)
    return force


def _variants(resolved: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Draw the values to try for one setting, and return a configuration for each, or only the given one."""
    with st.popover("Several runs", icon=":material/content_copy:"):
        keys = [setting.dotted for setting in form.fields() if setting.dotted not in {"name", "mode"}]
        key = st.selectbox("Setting", keys, index=keys.index("seed"), key="over", bind="query-params")
        text = st.text_input("Values", placeholder="0, 1, 2", help=_VALUES, key="values", bind="query-params")
        if not (text or "").strip():
            return [resolved]
        variants, wrong = make_variants(resolved, form.field(key), text)
        for line in wrong:
            markup.note(f"✕ {line}")
        markup.note(", ".join(str(config["name"]) for config in variants[:MAX_VARIANTS]))
        return [] if wrong else variants


_VALUES = "Separated by commas. Each value is queued as its own run, named after it."


def make_variants(config: Mapping[str, Any], setting: FormField, text: str) -> tuple[list[dict[str, Any]], list[str]]:
    """Return a configuration for each value, named after it, and what is wrong with the values.

    Example:
        `demo`, `optimizer.learning_rate` and `0.001, 0.002` give `demo-learning_rate-0.001` and
        `demo-learning_rate-0.002`.
    """
    values = list(dict.fromkeys(value for part in text.split(",") if (value := part.strip())))
    found, wrong = [], []
    for value in values:
        if not setting.has_type(parsed := setting.parse(value)):
            allowed = ", ".join(setting.options) or setting.kind
            wrong.append(f"{setting.title} cannot be {value}. Allowed: {allowed}.")
            continue
        edits = {setting.path: parsed, ("name",): name_variant(config, setting, value)}
        found.append(form.edit(config, edits))
    if len(values) > MAX_VARIANTS:
        wrong.append(f"These are {len(values)} values. You can start up to {MAX_VARIANTS} runs at a time.")
    for variant in found[:MAX_VARIANTS]:
        wrong += [problem.what for problem in form.problems(variant) if problem.severity == "error"]
    return found, wrong


def name_variant(config: Mapping[str, Any], setting: FormField, value: object) -> str:
    """Return the name of a configuration in which one setting has another value."""
    suffix = re.sub("[^A-Za-z0-9._-]+", "-", f"{setting.path[-1]}-{value}").strip("-")
    stem = str(config.get("name", "run"))[: max(1, _MAX_NAME_LENGTH - len(suffix))]
    return f"{stem}-{suffix}"[:_MAX_NAME_LENGTH]


def _command(resolved: Mapping[str, Any], *, force: bool) -> None:
    """Draw the command that does the same as Start, and the configuration."""
    name, text = f"{resolved.get('name', 'run')}.yaml", write_yaml(dict(resolved))
    arguments = ["queue", "add", "--config", name, "--root", str(state.root()), *(["--force"] if force else [])]
    st.caption(f"Equivalent command in {plain(str(Path.cwd()))}, with the configuration saved there")
    st.code(strip_invisible(format_command(arguments)), language=None, wrap_lines=True)
    markup.download("Configuration", text, name)
    with st.expander("Show the configuration", type="compact"):
        st.code(strip_invisible(text), language="yaml")


page()
