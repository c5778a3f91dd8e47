"""Draw a plan: the answer, its memory, its time, and advice that one click applies."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import streamlit as st

from dashboard.shared import form
from dashboard.shared.charts import plan as figures
from dashboard.shared.parts import config_form, gate, markup, problems
from dashboard.shared.parts.gate import trying
from dashboard.shared.tables import headline, planned
from dashboard.shared.words import VERDICTS, get_verdict, part_name, plain
from launch import tasks
from launch.tasks import State, TaskResult
from schemas.formats import duration, percent, size
from schemas.reading import get_str

_LARGEST = 8


def head(plan: Mapping[str, Any]) -> None:
    """Draw the answer in one sentence, and its details below."""
    found = VERDICTS[get_verdict(plan, "verdict")]
    symbol = f'<span class="tp-sign tp-{found.tone}" title="{markup.safe(found.meaning)}">{found.symbol}</span>'
    lines = "".join(f'<p class="tp-sub">{markup.safe(line)}</p>' for line in planned.details(plan))
    st.html(f'<p class="tp-answer">{symbol} {markup.safe(planned.sentence(plan))}</p>{lines}')


def memory_picture(plan: Mapping[str, Any], *, key: str, observed: float | None = None) -> None:
    """Draw the memory of each program that runs on the device.

    `observed` is the peak memory of the run in bytes, or None if it was not measured.
    """
    found = [part for part in planned.memory_parts(plan) if not part.is_on_host]
    if found:
        programs = {part.program: f"{size(part.peak)} of {size(part.limit)}, {part.verdict}" for part in found}
        alt = "; ".join(f"{name}: {text}" for name, text in programs.items())
        figure = figures.memory(found, markup.colours(), observed=observed)
        markup.show_figure(figure, key=key, alt=f"Memory by program. {alt}")


def memory_table(plan: Mapping[str, Any], *, key: str) -> None:
    """Draw the parts of every program as a folded table, with how each was computed."""
    table = st.expander("Table", type="compact", key=f"{key} table", on_change="rerun")
    if table.open:
        rows = [
            (part.program, part_name(part.name), size(part.bytes), percent(part.bytes / part.peak), part.because)
            for part in planned.memory_parts(plan)
        ]
        with table:
            markup.table(["Program", "Part", "Memory per device", "Share", "Computed as"], rows, numbers=[2, 3])


def session_picture(plan: Mapping[str, Any], *, key: str) -> None:
    """Draw the phases of the run against the time limits of the target."""
    found = planned.time_parts(plan)
    if not found:
        markup.note("The time is unknown: the speed of this device is not in the table of machines.")
        return
    alt = ", ".join(f"{part.name} {duration(part.seconds.likely)}" for part in found)
    figure = figures.session(found, planned.time_limits(plan), markup.colours())
    markup.show_figure(figure, key=key, alt=f"Time of the run by phase: {alt}")


def largest_parts(plan: Mapping[str, Any]) -> None:
    """Draw the largest parts of the program that needs most."""
    markup.table(["Largest parts", "Size", "Computed as"], headline.parts(plan)[:_LARGEST], numbers=[1])


def advice(plan: Mapping[str, Any], *, source: str, config: Mapping[str, Any]) -> None:
    """Draw settings that need less, each with a button that applies it to the form."""
    found = planned.advice(plan)
    if found:
        st.html('<p class="tp-sub"><b>Suggested changes</b>, each planned for this device</p>')
    for number, one in enumerate(found):
        settings = planned.settings(one)
        edits = form.parse_assignments(settings)
        with st.container(horizontal=True, vertical_alignment="center", key=f"advice {number}"):
            codes = " + ".join(f"<code>{markup.safe(text)}</code>" for text in settings)
            st.html(
                f'<div class="tp-advice">{markup.sign(VERDICTS, get_verdict(one, "verdict"))} <span>{codes}</span>'
                f'<span class="tp-number">{size(planned.get_bytes(one, "need_bytes"))}</span>'
                f'<span class="tp-dim">{markup.safe(get_str(one, "costs") or "")}</span></div>'
            )
            st.button(
                "Apply",
                key=f"apply {number}",
                disabled=not edits or form.has_assignments(config, settings),
                on_click=config_form.put,
                args=[source, edits],
            )


def findings(plan: Mapping[str, Any]) -> None:
    """Draw what is wrong or wasteful in the planned run."""
    problems.show(planned.problems(plan))


SETTLE_SECONDS = 0.8
"""How long a form must stay unchanged before its configuration is planned."""

TICK_SECONDS = 0.5
_MAX_LINE = 90
_PROBLEM = re.compile(r"(error|warning|note) TP\d{3}: ")
_PROGRESS = re.compile(r"(?!\w*(Error|Exception|Warning): )[\w.-]+: [a-z]")
_LIBRARY = re.compile(r"[IWEF]\d{4} [\d:.]+\s+\d+ |WARNING: All log messages before absl")

Options = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class PlanQuestion:
    """A plan that a page wants.

    Attributes:
        options: Options of `trainproof plan` in addition to `--config`.
        label: Shown while the plan runs: `Compiling for t4`.
        button: Label of the button that starts it, or "" if it starts by itself.
    """

    options: Options
    label: str
    button: str = ""


def answers(root: Path, config: Mapping[str, Any], questions: Sequence[PlanQuestion]) -> dict[Options, TaskResult]:
    """Return the state of each question, with its answer if there is one."""
    return {one.options: tasks.plan_task(root, config, one.options).result() for one in questions}


def show(root: Path, config: Mapping[str, Any], questions: Sequence[PlanQuestion], *, key: str, allowed: bool) -> None:
    """Draw the progress of the questions, their buttons, and why one failed.

    Args:
        root: The root of runs.
        config: The configuration, complete.
        questions: In the order in which those without a button start; none starts after one that failed.
        key: Prefix of the keys of the buttons.
        allowed: Whether the configuration is valid.
    """
    states = _states(answers(root, config, questions))
    may_ask = allowed and gate.may_operate()
    is_busy = "running" in states.values() or (may_ask and _next_question(questions, states) is not None)
    fragment = st.fragment(run_every=TICK_SECONDS if is_busy else None)(_progress)
    fragment(root, config, questions, key, states, time.monotonic(), may_ask=may_ask)


def _progress(
    root: Path,
    config: Mapping[str, Any],
    questions: Sequence[PlanQuestion],
    key: str,
    drawn: Mapping[Options, State],
    drawn_at: float,
    *,
    may_ask: bool,
) -> None:
    known = answers(root, config, questions)
    states = _states(known)
    if any(states[options] in {"answered", "failed"} and states[options] != drawn[options] for options in states):
        st.rerun()
    following = _next_question(questions, states) if may_ask else None
    if following is not None and time.monotonic() - drawn_at >= SETTLE_SECONDS:
        _start(root, config, following)
    running = next((one for one in questions if states[one.options] == "running"), following)
    if running is not None:
        _draw_running(root, config, running, known[running.options], key)
        return
    for found in known.values():
        if found.state == "failed":
            _draw_failure(found)
    if may_ask:
        _draw_buttons(root, config, questions, states, key)
    elif "none" in states.values():
        markup.note(_FIX if gate.may_operate() else "Not planned yet. An operator who opens this page starts it.")


_FIX = "Fix the problems to get a plan."
_AGAIN = "Plans are kept. Plan again if free memory, the model or the data have changed."


def _states(known: Mapping[Options, TaskResult]) -> dict[Options, State]:
    return {options: found.state for options, found in known.items()}


def _next_question(questions: Sequence[PlanQuestion], states: Mapping[Options, State]) -> PlanQuestion | None:
    """Return the question that starts by itself now, or None."""
    if not {"running", "failed"}.isdisjoint(states.values()):
        return None
    return next((one for one in questions if not one.button and states[one.options] == "none"), None)


def _start(root: Path, config: Mapping[str, Any], question: PlanQuestion) -> None:
    with trying("The plan could not be started"):
        tasks.plan_task(root, config, question.options).start()


def _draw_running(root: Path, config: Mapping[str, Any], question: PlanQuestion, found: TaskResult, key: str) -> None:
    """Draw how long a plan has been running, its last message and a Cancel button."""
    tasks.plan_task(root, config, question.options).watch()
    elapsed = "" if found.seconds is None else f", {duration(round(found.seconds))}"
    message = progress_line(found.output)
    with st.container(horizontal=True, vertical_alignment="center"):
        st.status(f"{question.label}{elapsed}" + (f" ({plain(message)})" if message else ""), state="running")
        may_cancel = found.state == "running" and gate.may_operate()
        if may_cancel and st.button("Cancel", icon=":material/close:", key=f"{key} cancel"):
            with trying("The plan could not be cancelled"):
                tasks.plan_task(root, config, question.options).cancel()
                st.rerun()


def _draw_failure(found: TaskResult) -> None:
    code = "was stopped" if found.exit_code is None else f"ended with exit code {found.exit_code}"
    markup.note(f"No plan: the program {code}.")
    if text := failure_text(found.output):
        st.code(text, language=None, wrap_lines=True)


def _draw_buttons(
    root: Path, config: Mapping[str, Any], questions: Sequence[PlanQuestion], states: Mapping[Options, State], key: str
) -> None:
    failed = [one for one in questions if states[one.options] == "failed"]
    waiting = [one for one in questions if states[one.options] in {"none", "cancelled"}]
    with st.container(horizontal=True):
        for one in failed or waiting:
            label = "Try again" if failed else one.button or "Estimate"
            if st.button(label, icon=":material/memory:", key=f"{key} {one.label}"):
                _start(root, config, one)
                st.rerun()
        if "answered" in states.values() and st.button("Plan again", icon=":material/refresh:", help=_AGAIN):
            with trying("The earlier plans could not be removed"):
                for one in questions:
                    tasks.plan_task(root, config, one.options).forget()
            st.rerun()


def progress_line(output: str) -> str:
    """Return the last progress message of the program: `t4: compiling train`; empty before its first.

    Compilers print lines of any form, also tracebacks that were caught.
    """
    lines = [line for line in output.splitlines() if _PROGRESS.match(line)]
    return lines[-1][-_MAX_LINE:] if lines else ""


def failure_text(output: str) -> str:
    """Return the output from the first problem on, or all of it without one. Log lines of libraries are dropped."""
    lines = [line for line in output.splitlines() if not _LIBRARY.match(line)]
    first = next((number for number, line in enumerate(lines) if _PROBLEM.match(line)), 0)
    return "\n".join(lines[first:])
