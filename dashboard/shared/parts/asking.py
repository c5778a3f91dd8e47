"""Asking for plans by itself while a form changes: after a pause, one question at a time, to be cancelled at any time.

A page draws what is known when it is drawn. The part below states how far the rest is; it looks every moment, starts
what is next once the form has rested, and has the page drawn again when an answer is there. It starts a plan only when
it looks, never while the page is drawn, so that a page is never slower for it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import streamlit as st

from dashboard.shared.parts import gate, markup
from dashboard.shared.parts.launching import trying
from launch import tasks
from launch.tasks import State, TaskResult
from schemas.formats import duration

PAUSE_SECONDS = 0.8
"""How long a form must rest before its configuration is planned."""

TICK_SECONDS = 0.5
_SHOWN = 90
_FRESH, _SINCE, _STOPPED, _ASKED, _ENDED = (f"plans {name}" for name in ("fresh", "since", "stopped", "asked", "ended"))

Options = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class PlanQuestion:
    """One plan of a configuration.

    Attributes:
        options: Options of `trainproof plan` besides the configuration.
        said: What is done meanwhile: `Compiling for t4`.
        before: Options of a question whose answer states all of this one and more.
    """

    options: Options
    said: str
    before: Options | None = None


def answers(root: Path, config: Mapping[str, Any], questions: Sequence[PlanQuestion]) -> dict[Options, TaskResult]:
    """Return what is known of each question."""
    return {one.options: tasks.plan_task(root, config, one.options).result() for one in questions}


def open_questions(questions: Sequence[PlanQuestion], known: Mapping[Options, TaskResult]) -> list[PlanQuestion]:
    """Return the questions without those that a later one has already answered."""
    answered = {options for options, found in known.items() if found.state == "answered"}
    return [one for one in questions if one.before is None or one.before not in answered]


def next_to_ask(states: Sequence[State]) -> int | None:
    """Return which question to start now, or None: one at a time, and none behind one that failed."""
    for number, state in enumerate(states):
        if state in {"running", "failed"}:
            return None
        if state in {"none", "cancelled"}:
            return number
    return None


def is_coming(root: Path, config: Mapping[str, Any], questions: Sequence[PlanQuestion]) -> bool:
    """Return whether an answer is being looked for, or will be by itself: nothing has failed or was cancelled."""
    known = answers(root, config, questions)
    return (
        "failed" not in {found.state for found in known.values()}
        and _digest(root, config, questions) not in _stopped_questions()
    )


def _digest(root: Path, config: Mapping[str, Any], questions: Sequence[PlanQuestion]) -> str:
    return str(tasks.plan_task(root, config, questions[-1].options).folder)


def show(root: Path, config: Mapping[str, Any], questions: Sequence[PlanQuestion], *, key: str, allowed: bool) -> None:
    """Draw how far the questions are, what can be done about it, and why there is no answer.

    Questions are started in their order; earlier plans of the page `key` that are not wanted any more are ended.
    """
    known = answers(root, config, questions)
    wanted = open_questions(questions, known)
    _end_others(root, config, questions, key=key)
    digest = _digest(root, config, questions)
    since, when = st.session_state.get(_SINCE, ("", 0.0))
    st.session_state[_SINCE] = (digest, when if since == digest else time.monotonic())
    st.session_state[_FRESH] = True
    st.session_state[_ENDED] = _ended_questions(known)
    asking = allowed and gate.may_operate()
    states = [known[one.options].state for one in wanted]
    is_busy = "running" in states or (asking and digest not in _stopped_questions() and next_to_ask(states) is not None)
    tick = TICK_SECONDS if is_busy else None
    st.fragment(run_every=tick)(_progress)(root, config, tuple(questions), key, digest, asking=asking)


def _progress(
    root: Path, config: Mapping[str, Any], questions: Sequence[PlanQuestion], key: str, digest: str, *, asking: bool
) -> None:
    is_drawn_with_page = st.session_state.pop(_FRESH, False)
    known = answers(root, config, questions)
    wanted = open_questions(questions, known)
    states = [known[one.options].state for one in wanted]
    if not is_drawn_with_page and _ended_questions(known) != st.session_state.get(_ENDED):
        st.rerun()
    following = next_to_ask(states) if asking and digest not in _stopped_questions() else None
    if following is not None and not is_drawn_with_page and _has_rested():
        _ask(root, config, wanted[following], key)
        known |= answers(root, config, [wanted[following]])
        states = [known[one.options].state for one in wanted]
    if "running" in states:
        number = states.index("running")
        _running(root, config, wanted[number], known[wanted[number].options], share=number / len(wanted), digest=digest)
    elif "failed" in states:
        _draw_failure(known[wanted[states.index("failed")].options])
        _again(root, config, wanted[states.index("failed")], key, digest, asking=asking)
    elif following is not None:
        st.progress(following / len(wanted), text=f"{wanted[following].said}: next")
    elif next_to_ask(states) is not None and asking:
        markup.note("Cancelled. Change the form or check again.")
        _again(root, config, wanted[next_to_ask(states) or 0], key, digest, asking=asking)
    elif next_to_ask(states) is not None:
        markup.note(_NOT_ASKED if not gate.may_operate() else "Not checked: fix the problems first.")
    elif asking and st.button("Check again", icon=":material/refresh:", help=_AGAIN):
        with trying("The memory could not be checked again"):
            for one in questions:
                tasks.plan_task(root, config, one.options).forget()
        st.rerun()


_NOT_ASKED = "Not checked yet. An operator who opens this page has it checked."


def _running(
    root: Path, config: Mapping[str, Any], question: PlanQuestion, found: TaskResult, *, share: float, digest: str
) -> None:
    """Draw how far a question is, and the button that ends it."""
    tasks.plan_task(root, config, question.options).watch()
    said = f"{question.said}, {duration(round(found.seconds or 0))}"
    with st.container(horizontal=True, vertical_alignment="center"):
        st.progress(share, text=said)
        if gate.may_operate() and st.button("Cancel", icon=":material/close:", key="cancel plan"):
            with trying("It could not be cancelled"):
                tasks.plan_task(root, config, question.options).cancel()
                st.session_state[_STOPPED] = _stopped_questions() | {digest}
                st.rerun()
    if said := last_said(found.output):
        markup.note(said)


def last_said(output: str) -> str:
    """Return the last line that the program itself printed, empty empty before its first line.

    It states `t4: compiling train`; compilers print lines of any form, also tracebacks, which help no one here.
    """
    lines = [line for line in output.splitlines() if _PROGRESS.match(line)]
    return lines[-1][-_SHOWN:] if lines else ""


def why_not(output: str) -> str:
    """Return why the program gave no answer: its own problems where it named some, else all that was printed."""
    lines = [line for line in output.splitlines() if not _OF_LIBRARY.match(line)]
    first = next((number for number, line in enumerate(lines) if _PROBLEM.match(line)), 0)
    return "\n".join(lines[first:])


_PROBLEM = re.compile(r"(error|warning|note) TP\d{3}: ")
_PROGRESS = re.compile(r"(?!\w*(Error|Exception|Warning): )[\w.-]+: [a-z]")
_OF_LIBRARY = re.compile(r"[IWEF]\d{4} [\d:.]+\s+\d+ |WARNING: All log messages before absl")


def _draw_failure(found: TaskResult) -> None:
    code = "was stopped" if found.exit_code is None else f"ended with exit code {found.exit_code}"
    markup.note(f"The check gave no answer: it {code}.")
    if said := why_not(found.output):
        st.code(said, language=None, wrap_lines=True)


def _again(
    root: Path, config: Mapping[str, Any], question: PlanQuestion, key: str, digest: str, *, asking: bool
) -> None:
    if asking and st.button("Check again", icon=":material/refresh:", help=_AGAIN):
        st.session_state[_STOPPED] = _stopped_questions() - {digest}
        _ask(root, config, question, key)
        st.rerun()


_AGAIN = "Answers are kept. How much memory is free, or the program, may have changed since."


def _ask(root: Path, config: Mapping[str, Any], question: PlanQuestion, key: str) -> None:
    with trying("The memory could not be checked"):
        tasks.plan_task(root, config, question.options).start()
        asked = st.session_state.get(_ASKED, {})
        st.session_state[_ASKED] = asked | {key: [*asked.get(key, []), (config, question.options)]}


def _end_others(root: Path, config: Mapping[str, Any], questions: Sequence[PlanQuestion], *, key: str) -> None:
    """End what this page has planned for another form, and forget what has ended."""
    asked = st.session_state.get(_ASKED, {})
    wanted = {one.options for one in questions}
    kept = []
    for other, options in asked.get(key, []):
        task = tasks.plan_task(root, other, options)
        if task.result().state != "running":
            continue
        if other == config and options in wanted:
            kept.append((other, options))
            continue
        with trying("What was asked before could not be ended"):
            task.cancel()
    st.session_state[_ASKED] = asked | {key: kept}


def _ended_questions(known: Mapping[Options, TaskResult]) -> dict[Options, bool]:
    return {options: found.state in {"answered", "failed"} for options, found in known.items()}


def _has_rested() -> bool:
    since: float = st.session_state.get(_SINCE, ("", time.monotonic()))[1]
    return time.monotonic() - since >= PAUSE_SECONDS


def _stopped_questions() -> frozenset[str]:
    """Return the questions that the reader has cancelled, which are not planned again by themselves."""
    found: frozenset[str] = st.session_state.get(_STOPPED, frozenset())
    return found
