"""The plan page: will it fit, where, with which batch, and what of a session does it take; before anything is spent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from dashboard.shared.config import configs, form
from dashboard.shared.config.missing_names import absent
from dashboard.shared.parts import asking, config_form, gate, markup, plan_answer, plotted, problems, source_box
from dashboard.shared.parts.asking import Options, PlanQuestion
from dashboard.shared.session import state
from dashboard.shared.words.verdicts import verdict_at
from dashboard.views.plan.logic import grid, where
from dashboard.views.plan.parts import target_box
from dashboard.views.plan.parts.target_box import ChosenTarget
from evidence.bundle.secrets import strip_invisible
from launch.jobs import CONFIG
from launch.process import format_command
from schemas.reading import get_number
from schemas.validate import check_value

WHERE: Options = ("--where", "--quick")


def page() -> None:
    """Draw the page."""
    markup.heading("Plan", lines=["Says what a run needs on a device that you do not have yet. Nothing is trained."])
    gate.viewer_note()
    with st.container(horizontal=True, vertical_alignment="bottom"):
        source = source_box.choose()
        target = target_box.choose()
        if source is not None and st.button("Open in Launch", icon=":material/play_circle:"):
            # Of the source the box there knows; a parameter that a box is bound to cannot be set.
            state.go(state.LAUNCH, **_changes())
    if source is None:
        markup.empty("No configuration found", f"None in {configs.SHIPPED}, and no run has one.")
        return
    start = configs.read(source)
    config_form.read_address(source.key)
    with st.expander("Change the configuration", key="changing", icon=":material/tune:"):
        edited = config_form.show(source.key, start)
    config_form.write_address(start, edited)
    _answers(source.key, form.with_defaults(edited), target)


def _changes() -> dict[str, list[str]]:
    stated = st.query_params.get_all(config_form.SET)
    return {config_form.SET: stated} if stated else {}


def questions(target: ChosenTarget) -> tuple[PlanQuestion, ...]:
    """Return what is requested a target, the quick answers first."""
    on = ("--on", target.on)
    return (
        PlanQuestion(options=(*on, "--quick"), said=f"Estimating by formula for {target.name}", before=on),
        PlanQuestion(options=WHERE, said="Adding up for every target"),
        PlanQuestion(options=(*on, "--grid", "--quick"), said="Adding up for every batch and length"),
        PlanQuestion(options=on, said=f"Compiling for {target.name}"),
    )


def _answers(source: str, config: Mapping[str, Any], target: ChosenTarget) -> None:
    found = [*check_value(form.KIND, config, file=CONFIG), *absent(config, file=CONFIG)]
    sound = not any(problem.severity == "error" for problem in found)
    asked = questions(target)
    quick, where, sizes, compiled = (one.options for one in asked)
    known = asking.answers(state.root(), config, asked)
    plan = known[compiled].answer or known[quick].answer
    if plan is not None:
        plan_answer.head(plan)
        if verdict_at(plan, "verdict") == "unsupported":
            plan_answer.findings(plan)
    elif sound and asking.is_coming(state.root(), config, asked):
        markup.empty("Planning", f"{config.get('name', 'run')} on {target.name} …")
    asking.show(state.root(), config, asked, key="plan", allowed=sound)
    problems.show(found)
    left, right = st.columns(2, gap="large")
    with left:
        if (answer := known[where].answer) is not None:
            st.header("Where can I run this?", anchor=False)
            _draw_targets(answer, chosen=target.name, plan=plan)
    with right:
        if (answer := known[sizes].answer) is not None:
            st.header("Which batch and length fit?", anchor=False)
            _draw_sizes(answer, config)
    if plan is not None and verdict_at(plan, "verdict") != "unsupported":
        _details(plan, source, config)
    if sound:
        _command(config, target)


def _draw_targets(answer: Mapping[str, Any], *, chosen: str, plan: Mapping[str, Any] | None = None) -> None:
    """Draw where the configuration can run, and the same as a table."""
    found = where.places(answer, plan=plan, chosen=chosen)
    if not found:
        markup.note("The answer names no target.")
        return
    said = where.in_one_sentence(found)
    markup.note(said)
    plotted.show(where.bars(found, plotted.colours(), chosen=chosen), key="where", alt=said)
    for reason in where.why_unsupported(found):
        markup.note(reason)
    if known := where.known_by(found, chosen):
        st.caption(known)
    table = st.expander("The same as a table", type="compact", key="where table", on_change="rerun")
    if table.open:
        with table:
            markup.table(where.HEAD, where.rows(found), numbers=range(2, 7))


def _draw_sizes(answer: Mapping[str, Any], config: Mapping[str, Any]) -> None:
    """Draw which batches and lengths fit, round the one of the configuration a frame."""
    found = grid.grid(answer)
    if found is None:
        markup.note("The answer names no sizes.")
        return
    said = grid.in_one_sentence(found)
    markup.note(said)
    chosen = (get_number(config, "batch", "microbatch_size"), get_number(config, "data", "max_length"))
    batch, length = (None if one is None else int(one) for one in chosen)
    plotted.show(grid.heat_map(found, plotted.colours(), chosen=(batch, length)), key="sizes", alt=said)
    yours = " The dotted frame: yours." if grid.is_in(found, batch, length) else ""
    how = f" All {grid.method_of(found)}." if grid.method_of(found) else ""
    st.caption(f"✓ fits · ! tight · ✕ does not fit. The thick line: all sizes below it fit.{yours}{how}")


def _details(plan: Mapping[str, Any], source: str, config: Mapping[str, Any]) -> None:
    left, right = st.columns(2, gap="large")
    with left:
        st.header("What is the memory for?", anchor=False)
        plan_answer.memory_picture(plan, key="plan_memory")
        plan_answer.memory_table(plan, key="plan_memory")
    with right:
        st.header("What is the session spent on?", anchor=False)
        plan_answer.session_picture(plan, key="plan_session")
    plan_answer.advice(plan, source=source, config=config)
    plan_answer.findings(plan)


def _command(config: Mapping[str, Any], target: ChosenTarget) -> None:
    name = f"{config.get('name', 'run')}.yaml"
    st.caption("The same in a terminal, with the configuration saved there")
    st.code(
        strip_invisible(format_command(["plan", "--config", name, "--on", target.name])),
        language=None,
        wrap_lines=True,
    )


page()
