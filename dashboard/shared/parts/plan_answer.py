"""Draw a plan: the answer, its memory, its time, and advice that one click applies."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import pandas as pd
import plotly.express as px
import plotly.graph_objects as go
import streamlit as st

from dashboard.shared import form, state
from dashboard.shared.charts.theme import Palette, choose_unit, label, template
from dashboard.shared.parts import config_form, gate, markup
from dashboard.shared.parts.gate import trying
from dashboard.shared.tables import planned
from dashboard.shared.tables.planned import MemoryPart
from dashboard.shared.words import VERDICTS, get_verdict, part_name, plain
from launch import tasks
from launch.tasks import State, Task, TaskResult
from schemas.formats import duration, percent, size
from schemas.reading import get_str


def draw_answer(plan: Mapping[str, Any]) -> None:
    """Draw the answer in one sentence, and its details below."""
    found = VERDICTS[get_verdict(plan, "verdict")]
    symbol = f'<span class="tp-sign tp-{found.tone}" title="{markup.safe(found.meaning)}">{found.symbol}</span>'
    lines = "".join(f'<p class="tp-sub">{markup.safe(line)}</p>' for line in planned.details(plan))
    st.html(f'<p class="tp-answer">{symbol} {markup.safe(planned.sentence(plan))}</p>{lines}')


def draw_memory(plan: Mapping[str, Any], *, key: str, observed: float | None = None) -> None:
    """Draw the memory of each program on the device, and a collapsed table of all parts with how they were computed.

    `observed` is the peak memory of the run in bytes, or None if it was not measured.
    """
    parts = planned.memory_parts(plan)
    if not parts:
        return
    if on_device := [part for part in parts if not part.is_on_host]:
        programs = {part.program: f"{size(part.peak)} of {size(part.limit)}, {part.verdict}" for part in on_device}
        alt = "; ".join(f"{name}: {text}" for name, text in programs.items())
        figure = memory_figure(on_device, markup.colours(), observed=observed)
        markup.show_figure(figure, key=key, alt=f"Memory by program. {alt}")
    table = st.expander("Table", type="compact", key=f"{key} table", on_change="rerun")
    if table.open:
        rows = [
            (part.program, part_name(part.name), size(part.bytes), percent(part.bytes / part.peak), part.because)
            for part in parts
        ]
        with table:
            markup.table(["Program", "Part", "Memory per device", "Share", "Computed as"], rows, numbers=[2, 3])


def draw_time(plan: Mapping[str, Any]) -> None:
    """Draw how long the phases of the run take."""
    rows = [(part.name, duration(part.seconds.likely), part.because) for part in planned.time_parts(plan)]
    if rows:
        markup.table(["Phase", "Time", "Computed as"], rows, numbers=[1])
    elif get_verdict(plan, "verdict") != "unsupported":
        markup.note("The time is unknown: the speed of this device is not in the table of machines.")


def draw_advice(plan: Mapping[str, Any], *, source: str, config: Mapping[str, Any]) -> None:
    """Draw settings that need less, each with a button that applies it to the form."""
    suggestions = planned.advice(plan)
    if suggestions:
        st.html('<p class="tp-sub"><b>Suggested changes</b>, each planned for this device</p>')
    for number, suggestion in enumerate(suggestions):
        settings = planned.settings(suggestion)
        edits = form.parse_assignments(settings)
        with st.container(horizontal=True, vertical_alignment="center", key=f"advice {number}"):
            verdict = markup.sign(VERDICTS, get_verdict(suggestion, "verdict"))
            codes = " + ".join(f"<code>{markup.safe(text)}</code>" for text in settings)
            st.html(
                f'<div class="tp-advice">{verdict} <span>{codes}</span>'
                f'<span class="tp-number">{size(planned.get_bytes(suggestion, "need_bytes"))}</span>'
                f'<span class="tp-dim">{markup.safe(get_str(suggestion, "costs") or "")}</span></div>'
            )
            st.button(
                "Apply",
                key=f"apply {number}",
                disabled=not edits or form.edit(config, edits) == config,
                on_click=config_form.put,
                args=[source, edits],
            )


SETTLE_SECONDS = 0.8  # how long a form must stay unchanged before its configuration is planned
TICK_SECONDS = 0.5
_MAX_LINE = 90
_PROBLEM = re.compile(r"(error|warning|note) TP\d{3}: ")
_PROGRESS = re.compile(r"(?!\w*(Error|Exception|Warning): )[\w.-]+: [a-z]")
_LIBRARY = re.compile(r"[IWEF]\d{4} [\d:.]+\s+\d+ |WARNING: All log messages before absl")
_AGAIN = "Answers are kept. Ask again if memory, model, data or quota have changed."


@dataclass(frozen=True, kw_only=True)
class PlanQuestion:
    """A plan that a page wants.

    Attributes:
        options: Options of `trainproof plan` in addition to `--config`.
        label: Shown while the plan runs: `Compiling for t4`.
        button: Label of the button that starts it, or "" if it starts by itself.
        again: Label of the button that starts it again.
    """

    options: tuple[str, ...]
    label: str
    button: str = ""
    again: str = "Plan again"


def load_answer(config: Mapping[str, Any], question: PlanQuestion) -> Mapping[str, Any] | None:
    """Return the answer to a question about a complete configuration, or None until there is one."""
    return tasks.plan_task(state.root(), config, question.options).result().answer


def draw_questions(config: Mapping[str, Any], questions: Sequence[PlanQuestion], *, key: str, is_valid: bool) -> None:
    """Draw the progress of the questions, their buttons, and why one failed.

    Questions without a button start in their order; none starts after one that failed, or if the configuration, which
    must be complete, is not valid. `key` is the prefix of the keys of the buttons.
    """
    plans = {question: tasks.plan_task(state.root(), config, question.options) for question in questions}
    states = {question: task.result().state for question, task in plans.items()}
    may_ask = is_valid and gate.may_operate()
    is_busy = "running" in states.values() or (may_ask and next_question(states) is not None)
    fragment = st.fragment(run_every=TICK_SECONDS if is_busy else None)(_draw_progress)
    fragment(plans, key, states, time.monotonic(), may_ask=may_ask)


def _draw_progress(
    plans: Mapping[PlanQuestion, Task], key: str, drawn: Mapping[PlanQuestion, State], drawn_at: float, *, may_ask: bool
) -> None:
    results = {question: task.result() for question, task in plans.items()}
    states = {question: result.state for question, result in results.items()}
    if any(now in {"answered", "failed"} and now != drawn[question] for question, now in states.items()):
        st.rerun()
    may_ask = may_ask and gate.may_operate()
    following = next_question(states) if may_ask else None
    if following is not None and time.monotonic() - drawn_at >= SETTLE_SECONDS:
        with trying("The plan could not be started"):
            plans[following].start()
    running = next((question for question, now in states.items() if now == "running"), following)
    if running is not None:
        _draw_running(running, plans[running], results[running], key)
        return
    for result in results.values():
        if result.state == "failed":
            code = "was stopped" if result.exit_code is None else f"ended with exit code {result.exit_code}"
            markup.note(f"No answer: the program {code}.")
            if text := failure_text(result.output):
                st.code(text, language=None, wrap_lines=True)
    if may_ask:
        _draw_buttons(plans, states, key)
    elif "none" in states.values():
        is_operator = gate.may_operate()
        as_viewer = "Not planned yet. An operator who opens this page starts it."
        markup.note("Fix the problems to get a plan." if is_operator else as_viewer)


def _draw_buttons(plans: Mapping[PlanQuestion, Task], states: Mapping[PlanQuestion, State], key: str) -> None:
    failed = [question for question, now in states.items() if now == "failed"]
    with st.container(horizontal=True):
        for question in failed or [question for question, now in states.items() if now in {"none", "cancelled"}]:
            label = "Try again" if failed else question.button or "Estimate"
            start, look = plans[question].start, {"icon": ":material/memory:", "key": f"{key} {question.label}"}
            gate.act(label, start, "The plan could not be started", **look)
        if "answered" in states.values() and st.button(
            next(iter(plans)).again, icon=":material/refresh:", help=_AGAIN, key=f"{key} again"
        ):
            with trying("The earlier plans could not be removed"):
                for task in plans.values():
                    task.forget()
            st.rerun()


def next_question(states: Mapping[PlanQuestion, State]) -> PlanQuestion | None:
    """Return the question that starts by itself now, or None."""
    if not {"running", "failed"}.isdisjoint(states.values()):
        return None
    return next((question for question, now in states.items() if not question.button and now == "none"), None)


def _draw_running(question: PlanQuestion, task: Task, result: TaskResult, key: str) -> None:
    task.watch()
    elapsed = "" if result.seconds is None else f", {duration(round(result.seconds))}"
    # Compilers print lines of any form, also tracebacks that were caught.
    message = next(filter(_PROGRESS.match, reversed(result.output.splitlines())), "")[-_MAX_LINE:]
    with st.container(horizontal=True, vertical_alignment="center"):
        st.status(f"{question.label}{elapsed}" + (f" ({plain(message)})" if message else ""), state="running")
        if result.state == "running":
            failed = "The plan could not be cancelled"
            gate.act("Cancel", task.cancel, failed, icon=":material/close:", key=f"{key} cancel")


def failure_text(output: str) -> str:
    """Return the output from its first problem on, without log lines of libraries."""
    lines = [line for line in output.splitlines() if not _LIBRARY.match(line)]
    first = next((number for number, line in enumerate(lines) if _PROBLEM.match(line)), 0)
    return "\n".join(lines[first:])


_FAR = 6.0
"""Limits further away than this many times the longest bar are not drawn, to keep the bars readable."""
_ROW_PIXELS, _FRAME_PIXELS = 56, 120

_USES: Mapping[str, str] = {
    "params": "parameters",
    "frozen": "parameters",
    "adapters": "parameters",
    "opt_state": "optimizer state",
    "gradients": "gradients",
    "table_gradient": "gradients",
    "activations": "activations",
    "layer_inside": "activations",
    "layer_inputs": "activations",
    "logits": "logits",
    "key_value_cache": "key-value cache",
    "cache": "key-value cache",
}


def memory_figure(parts: Sequence[MemoryPart], colours: Palette, *, observed: float | None = None) -> go.Figure:
    """Draw one stacked bar per program (at least one), and the observed peak memory in bytes if it was measured."""
    divisor, unit = choose_unit("bytes", max(part.peak for part in parts))
    bars = pd.DataFrame(
        {
            "row": f"{label(part.program)}<br>{VERDICTS[part.verdict].symbol} {size(part.peak)}",
            "use": _USES.get(part.name, "other"),
            "length": part.bytes / divisor,
            "text": f"{label(part_name(part.name))}: {size(part.bytes)}<br>{label(part.because)}",
        }
        for part in parts
    )
    totals = bars.groupby("row", sort=False)["length"].sum()
    lines = {f"usable {size(part.limit)}": part.limit for part in parts if part.limit is not None}
    if observed is not None:
        lines[f"observed {size(observed)}"] = observed
    figure = px.bar(
        bars,
        x="length",
        y="row",
        color="use",
        color_discrete_map=dict(colours.parts),
        category_orders={"use": list(colours.parts), "row": list(totals.index)},
        custom_data=["text"],
        orientation="h",
        height=_FRAME_PIXELS + _ROW_PIXELS * len(totals),
        template=template(colours),
    )
    figure.update_traces(hovertemplate="%{customdata[0]}<extra></extra>", marker_line_color=colours.paper)
    near = {name: value / divisor for name, value in lines.items() if value / divisor <= _FAR * totals.max()}
    for (name, value), dash in zip(near.items(), cycle(("dash", "dot")), strict=False):
        figure.add_vline(x=value, line={"color": colours.ink, "width": 2, "dash": dash}, name=name, showlegend=True)
    figure.update_xaxes(title_text=f"{unit} per device", range=[0, 1.04 * max([totals.max(), *near.values()])])
    figure.update_yaxes(title_text="", showticklabels=len(totals) > 1, tickfont_color=colours.ink)
    legend = {"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom", "title_text": ""}
    return figure.update_layout(showlegend=True, legend=legend)
