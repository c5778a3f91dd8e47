"""Repeating a run from a page: how much, how far it is, and what came of it, as a strip of its training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import streamlit as st

from dashboard.shared.charts import repeat_strip
from dashboard.shared.parts import gate, markup
from dashboard.shared.parts.launching import trying
from dashboard.shared.session import reading, state
from evidence.proof.verification import explain_receipt
from launch import repeating
from launch.asking import PlanRequest
from launch.repeating import Verb
from schemas.formats import duration
from schemas.reading import get_path, get_str

TICK_SECONDS = 1.0
_DRAWN, _EVERYTHING, _QUESTIONS = "A random sample", "Everything", "New questions"
_WAYS = (_DRAWN, _EVERYTHING, _QUESTIONS)
_MEANING = {
    _DRAWN: "All answers, the first and the last part of the training, and parts between that a number of now draws.",
    _EVERYTHING: "The whole run from its seed: as long as the run took, and nothing is left untried.",
    _QUESTIONS: "All answers, and questions that nobody has seen, made from your seed; no step of the training.",
}


@dataclass(frozen=True, kw_only=True)
class ReplaySubject:
    """What is repeated.

    Attributes:
        path: A run's folder, or a bundle.
        sha256: Hash of the run's manifest, or of the bundle.
        steps: Steps of the training; 0 if unknown.
        name: How the command line of a reader names it.
    """

    path: Path
    sha256: str
    steps: int
    name: str


def show(subject: ReplaySubject, *, key: str) -> None:
    """Draw how a run is repeated here, and what came of it."""
    way = st.segmented_control("How much", _WAYS, default=_DRAWN, key=f"{key} way", required=True)
    markup.note(_MEANING[way])
    verb, options = _asked_for(way, key)
    command = f"trainproof {verb} {subject.name} {' '.join(options)}".rstrip()
    st.code(command, language=None)
    found = repeating.repeating(state.root(), subject.path, subject.sha256, verb, options)
    tick = TICK_SECONDS if found.state == "running" else None
    st.fragment(run_every=tick)(_progress)(subject, verb, options, was_running=found.state == "running")


def _asked_for(way: str, key: str) -> tuple[Verb, tuple[str, ...]]:
    """Draw what can be chosen, and return the command."""
    if way == _EVERYTHING:
        return "replay", ("--all",)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        if way == _QUESTIONS:
            number = st.number_input("Questions", 1, 500, 20, key=f"{key} questions", width=140)
            seed = st.number_input("Your seed", 0, 2**31 - 1, 1, key=f"{key} seed", width=180)
            return "challenge", ("--generate", str(number), "--seed", str(seed))
        minutes = st.number_input("Minutes at most", 1, 360, 5, key=f"{key} minutes", width=160)
        return "replay", ("--minutes", str(minutes))


def _progress(subject: ReplaySubject, verb: Verb, options: Sequence[str], *, was_running: bool) -> None:
    found = repeating.repeating(state.root(), subject.path, subject.sha256, verb, options)
    if was_running and found.state != "running":
        reading.look_again()
        st.rerun()
    if found.state == "running":
        _running(subject, verb, options, found)
        return
    if found.answer is not None:
        _draw_answer(subject, verb, found.answer)
    elif found.state == "failed":
        markup.note("It gave no answer." if found.exit_code is None else f"It ended with exit code {found.exit_code}.")
        if found.output:
            st.code(
                ("\n".join(line for line in found.output.splitlines() if not line.startswith("{"))),
                language=None,
                wrap_lines=True,
            )
    if not gate.may_operate():
        markup.note("An operator who opens this page may repeat the run.")
    elif st.button("Repeat" if found.state == "none" else "Repeat again", icon=":material/replay:", type="primary"):
        with trying("It could not be repeated"):
            repeating.ask(state.root(), subject.path, subject.sha256, verb, options)
            st.rerun()


def _running(subject: ReplaySubject, verb: Verb, options: Sequence[str], found: PlanRequest) -> None:
    events = list(repeating.progress_of(found.output))
    if verb == "replay":
        st.html(repeat_strip.strip(repeat_strip.parts_so_far(events, steps=subject.steps)))
    said = next((_describe(event) for event in reversed(events) if _describe(event)), "Starting")
    with st.container(horizontal=True, vertical_alignment="center"):
        markup.note(f"{said}, {duration(round(found.seconds or 0))}")
        if gate.may_operate() and st.button("Cancel", icon=":material/close:", key="cancel repeat"):
            with trying("It could not be cancelled"):
                repeating.cancel(state.root(), subject.path, subject.sha256, verb, options)
                st.rerun()


def _describe(event: Mapping[str, Any]) -> str:
    if event.get("event") == "step":
        return f"Step {event.get('step')} of {event.get('of')}"
    if event.get("event") == "items" and "done" in event:
        return f"Answer {event['done']} of {event.get('of')}"
    return ""


def _draw_answer(subject: ReplaySubject, verb: Verb, receipt: Mapping[str, Any]) -> None:
    result = get_str(receipt, "result") or "not tried"
    made = markup.when(get_str(receipt, "made_at"), reading.reader_zone())
    said = markup.safe(get_str(receipt, "said") or "")
    st.html(f'<p class="tp-sub">{markup.sign(repeat_strip.VERDICTS, result)} {said} {made}</p>')
    if verb == "replay":
        parts = repeat_strip.parts_of(receipt, steps=subject.steps)
        st.html(repeat_strip.strip(parts))
        signs = {part.verdict: None for part in parts}
        st.html(f'<p class="tp-sub">{" ".join(markup.sign(repeat_strip.VERDICTS, word) for word in signs)}</p>')
        differing = [part for part in parts if part.difference]
        if differing:
            markup.table(
                ["Part", "First difference"], [(repeat_strip.describe(part), part.difference) for part in differing]
            )
    if "marks" in receipt:
        markup.bullets("What that is worth", explain_receipt(receipt))
    if failures := get_path(receipt, "score", "failures"):
        _failures(failures)


def _failures(failures: Any) -> None:
    rows = [
        tuple(str(one.get(name) or "") for name in ("prompt", "expected", "output_text"))
        for one in failures
        if isinstance(one, dict)
    ]
    if rows:
        markup.table(["Question", "Expected", "Answer"], rows)
