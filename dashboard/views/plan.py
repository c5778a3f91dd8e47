"""The plan page: does a configuration fit, where else, with which batch, and how long does it take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
import streamlit as st

from dashboard.shared import configs, form, state
from dashboard.shared.parts import config_form, gate, markup, plan_answer, problems, run_box
from dashboard.shared.parts.plan_answer import PlanQuestion
from dashboard.shared.tables import planned
from dashboard.shared.tables.planned import get_band, get_bytes
from dashboard.shared.words import VERDICTS, get_method, get_verdict
from evidence.bundle.secrets import strip_invisible
from evidence.targets import target_names
from launch.process import format_command
from schemas.formats import NOTHING, count, duration, size
from schemas.reading import get_number, get_objects, get_str

MAX_MACHINES = 40
MAX_SIZES = 24
"""Rows of the table of machines, and rows and columns of the table of sizes; an answer may hold more."""

_FIRST_MACHINE = "kaggle-tpu-v5e-8"

_GIB = 2**30
_MAX_SIZE = 2**40


def page() -> None:
    """Draw the page."""
    markup.heading("Plan", lines=["Check memory and time on any machine before you train."])
    gate.viewer_note()
    with st.container(horizontal=True, vertical_alignment="bottom"):
        source = run_box.choose_source()
        machines = target_names()
        machine = st.selectbox(
            "Machine",
            machines,
            index=machines.index(_FIRST_MACHINE),
            key="on",
            bind="query-params",
            width=280,
            help="For a machine that is not listed, describe it in a file and run `trainproof plan --on FILE`.",
        )
        if source is not None and st.button("Open in Launch", icon=":material/play_circle:"):
            # The select box of the other page knows the source; a parameter that a widget is bound to cannot be set.
            changes = st.query_params.get_all(config_form.SET)
            state.go(state.LAUNCH, **({config_form.SET: changes} if changes else {}))
    if source is None:
        markup.empty("No configuration found", f"Add one to {configs.SHIPPED}.")
        return
    with st.expander("Change the configuration", key="changing", icon=":material/tune:"):
        edited = config_form.draw_form(source.key, configs.read(source))
    _draw_plans(source.key, form.fill_defaults(edited), machine)


def _draw_plans(source: str, config: Mapping[str, Any], machine: str) -> None:
    found = form.problems(config)
    is_valid = not any(problem.severity == "error" for problem in found)
    wanted = [
        PlanQuestion(options=("--on", machine, "--grid", "--quick"), label=f"Estimating for {machine}"),
        PlanQuestion(options=("--where", "--quick"), label="Estimating for every machine"),
        PlanQuestion(options=("--on", machine), label=f"Compiling for {machine}", button=f"Compile for {machine}"),
    ]
    quick, everywhere, compiled = (plan_answer.load_answer(config, one) for one in wanted)
    plan = compiled or quick
    is_supported = plan is not None and get_verdict(plan, "verdict") != "unsupported"
    if plan is not None:
        plan_answer.draw_answer(plan)
    plan_answer.draw_questions(config, wanted if is_supported else wanted[:2], key="plan", is_valid=is_valid)
    problems.show(found)
    if plan is not None:
        plan_answer.draw_advice(plan, source=source, config=config)
        problems.show(planned.problems(plan))
    if plan is not None and is_supported:
        left, right = st.columns(2, gap="large")
        with left:
            st.header("Memory", anchor=False)
            plan_answer.draw_memory(plan, key="plan_memory")
        with right:
            st.header("Time", anchor=False)
            plan_answer.draw_time(plan)
    if everywhere is not None:
        st.header("Where does it fit?", anchor=False)
        _draw_machines(everywhere, plan if is_supported else None, machine)
    if quick is not None and is_supported:
        st.header("Which batch and length fit?", anchor=False)
        _draw_sizes(quick, config)
    if is_valid:
        st.caption("Equivalent command, with the configuration saved in that file")
        command = ["plan", "--config", f"{config.get('name', 'run')}.yaml", "--on", machine]
        st.code(strip_invisible(format_command(command)), language=None, wrap_lines=True)


def _draw_machines(answer: Mapping[str, Any], plan: Mapping[str, Any] | None, machine: str) -> None:
    """Draw the machines by verdict, then by how much of their memory is used."""
    found = {get_str(one, "target") or "?": one for one in get_objects(answer, "where")[:MAX_MACHINES]}
    if plan is not None:
        times = plan.get("time")
        found[machine] = {**(times if isinstance(times, Mapping) else {}), **plan}
    if not found:
        markup.note("No machines were planned.")
        return
    rows = pd.DataFrame([_machine_row(name, one) for name, one in found.items()])
    order = [f"{sign.symbol} {verdict}" for verdict, sign in VERDICTS.items()]
    rows["Verdict"] = pd.Categorical(rows["Verdict"], order, ordered=True)
    rows = rows.sort_values(["Verdict", "Memory"], ignore_index=True)
    fitting = rows[rows["Verdict"] == order[0]]
    free = fitting["Machine"][fitting["Weekly quota"].notna()]
    quota = f" Free within a weekly quota: {', '.join(free)}." if len(free) else ""
    markup.note(f"Fits on {len(fitting)} of {len(rows)} machines.{quota}")
    make = st.column_config
    share = "Share of the longest session that the machine allows"
    st.dataframe(
        rows,
        hide_index=True,
        placeholder=NOTHING,
        column_config={
            "Memory": make.ProgressColumn(min_value=0, max_value=1, format="percent", help="Need / usable"),
            "Need": make.NumberColumn("Need (GiB)", format="%.2f"),
            "Usable": make.NumberColumn("Usable (GiB)", format="%.2f"),
            "Session": make.NumberColumn(format="percent", help=share),
            "Weekly quota": make.NumberColumn(format="percent"),
        },
    )


def _machine_row(name: str, one: Mapping[str, Any]) -> dict[str, Any]:
    verdict, hours = get_verdict(one, "verdict"), get_band(one, "hours")
    need, usable = get_bytes(one, "need_bytes") or None, get_bytes(one, "available_bytes") or None
    session, week = get_band(one, "session_fraction"), get_band(one, "week_fraction")
    return {
        "Verdict": f"{VERDICTS[verdict].symbol} {verdict}",
        "Machine": strip_invisible(name),
        "Memory": round(need / usable, 3) if need and usable else None,
        "Need": need / _GIB if need else None,
        "Usable": usable / _GIB if usable else None,
        "Time": duration(hours.likely * 3600) if hours and verdict in {"fits", "tight"} else NOTHING,
        "Session": round(session.likely, 3) if session else None,
        "Weekly quota": round(week.likely, 3) if week else None,
        "Note": strip_invisible(get_str(one, "because") or "" if verdict == "unsupported" else get_method(one)),
    }


def _draw_sizes(answer: Mapping[str, Any], config: Mapping[str, Any]) -> None:
    """Draw a table of microbatch sizes by lengths, each cell with its verdict and the memory it needs."""
    own = (get_number(config, "batch", "microbatch_size"), get_number(config, "data", "max_length"))
    rows = []
    for one in get_objects(answer, "grid", "cells")[: MAX_SIZES**2]:
        batch, length = get_number(one, "microbatch_size") or 0, get_number(one, "max_length") or 0
        if 1 <= batch <= _MAX_SIZE and 1 <= length <= _MAX_SIZE:
            verdict, need = get_verdict(one, "verdict"), size(get_bytes(one, "need_bytes"))
            text = f"{VERDICTS[verdict].symbol} {need}{' (yours)' if (batch, length) == own else ''}"
            best = f"{count(batch)} × {count(length)} tokens, {need}"
            rows.append((int(batch), int(length), batch * length, verdict == "fits", text, best))
    if not rows:
        markup.note("No sizes were planned.")
        return
    frame = pd.DataFrame(rows, columns=["Microbatch", "length", "tokens", "fits", "text", "best"])
    fitting = frame[frame["fits"]].sort_values(["tokens", "length"])
    limit = size(get_bytes(answer, "grid", "available_bytes"))
    markup.note("No size fits." if fitting.empty else f"Largest that fits: {fitting['best'].iloc[-1]} of {limit}.")
    table = frame.pivot_table(index="Microbatch", columns="length", values="text", aggfunc="first", fill_value="")
    table = table.iloc[:MAX_SIZES, :MAX_SIZES].rename(columns=lambda length: f"{length:,} tokens")
    backs = markup.colours().backs
    tints = {sign.symbol: f"background-color: {backs[sign.tone]}" for sign in VERDICTS.values()}
    st.dataframe(table.style.map(lambda text: tints.get(text[:1], "")), key="sizes")
    st.caption(" · ".join(f"{sign.symbol} {verdict}" for verdict, sign in VERDICTS.items() if verdict != "unsupported"))


page()
