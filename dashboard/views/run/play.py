"""Tab Play: ask the model of a run. Each question is a `trainproof play` in the background."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import streamlit as st

from dashboard.shared import state
from dashboard.shared.parts import gate, markup
from dashboard.shared.parts.gate import trying
from dashboard.shared.words import both_ends, glimpse
from evidence import layout
from evidence.bundle.secrets import strip_invisible
from evidence.index.summary import RunSummary
from evidence.run import Run
from launch import tasks
from launch.process import format_command
from launch.tasks import Task, TaskResult
from schemas.reading import get_str

TICK_SECONDS = 0.5
_ASKED = "question to a model"
_PROMPT, _ITEM = "Prompt", "Evaluation item"
_MAX_SHOWN, _MAX_LINES = 2000, 12


@dataclass
class AskedQuestion:
    """The newest question of this user, and its result once the task has ended."""

    run: Path
    text: str
    task: Task
    result: TaskResult | None = None


def draw_play(run: Run, known: Mapping[str, RunSummary]) -> None:
    """Draw the question, the models that answer, and the answers."""
    markup.note("Answers are not saved in the run and do not affect its grade.")
    if not gate.may_operate():
        markup.note("You are logged in as a viewer. Only operators can start a model.")
        return
    question = _draw_question(run)
    others = [name for name, summary in known.items() if summary.path != run.path and summary.method]
    with st.container(horizontal=True, vertical_alignment="bottom"):
        beside = st.selectbox("Compare with", others, index=None, placeholder="No other run", key="beside", width=320)
        untrained = st.checkbox("Compare with the untrained model", key="play untrained")
    options = [f"--beside={known[beside].path.resolve()}"] if beside is not None and beside in known else []
    options += ["--untrained"] if untrained else []
    asked: AskedQuestion | None = st.session_state.get(_ASKED)
    if asked is not None and asked.run != run.path:
        with suppress(OSError):  # it is cancelled anyway when no page watches it
            asked.task.cancel()
        asked = st.session_state[_ASKED] = None
    is_running = asked is not None and asked.result is None
    with st.container(horizontal=True), trying("The model could not be started"):
        # Enabled without a prompt too, because the click that ends typing would be lost otherwise.
        if st.button("Ask", type="primary", icon=":material/send:", disabled=is_running) and question:
            task = tasks.play_task(state.root(), run.path, question, options)
            task.start()
            st.session_state[_ASKED] = AskedQuestion(run.path, " ".join(question.values()), task)
            st.rerun()
        if asked is not None and is_running and st.button("Stop", icon=":material/stop:"):
            asked.task.cancel()
            st.rerun()
    if asked is not None:
        st.fragment(run_every=TICK_SECONDS if is_running else None)(_draw_answers)(asked)
    st.caption("The model is loaded for each question. To keep it loaded, use the command line:")
    st.code(strip_invisible(format_command(["play", str(run.path)])), language=None, wrap_lines=True)


def _draw_question(run: Run) -> dict[str, str] | None:
    """Draw the question and return it, or None if it is empty."""
    items = {name: row for row in run.rows(layout.PREDICTIONS).values if (name := get_str(row, "id"))}
    kinds = [_PROMPT, _ITEM] if items else [_PROMPT]
    kind = st.segmented_control("Ask", kinds, default=_PROMPT, required=True, key="play")
    if kind == _PROMPT:
        text = st.text_area("Prompt", key="play prompt", height=100, max_chars=20_000)
        return {"prompt": text} if text.strip() else None
    item = st.selectbox(
        "Item",
        list(items),
        key="play item",
        format_func=lambda name: glimpse(f"{name}: {get_str(items[name], 'prompt')}", 90),
    )
    for key in ("prompt", "expected"):
        markup.note(f"{key.capitalize()}: {both_ends(get_str(items[item], key) or '', _MAX_SHOWN)}")
    return {"item": item}


def _draw_answers(asked: AskedQuestion) -> None:
    result = asked.result
    if result is None:
        asked.task.watch()
        result = asked.task.result()
        if result.state != "running":
            asked.result = result
            with suppress(OSError):
                asked.task.forget()
            st.rerun()
    markup.note(f"Question: {glimpse(asked.text, 300)}")
    events = (result.answer or {}).get("events", [])
    names = [model["name"] for event in events if event["event"] == "ready" for model in event["models"]]
    newest = {event["model"]: event for event in events if event["event"] in {"text", "answer"}}
    for number, column in enumerate(st.columns(len(names)) if names else []):
        with column:
            markup.note(names[number])
            _draw_answer(newest.get(number, {}))
    for event in events:
        for problem in event["problems"] if event["event"] == "refused" else ():
            markup.note(f"{problem['what']} {problem['next']}")
    if result.state == "running" and not names:
        st.progress(0.5, text="Loading the model")
    elif result.state in {"cancelled", "none"}:
        markup.note("Stopped.")
    elif result.state == "failed" or result.exit_code:
        st.code(result.output or "The model was killed.", language=None, wrap_lines=True)


def _draw_answer(event: Mapping[str, Any]) -> None:
    text = event.get("text") or " "
    st.code(text, language=None, wrap_lines=True, height=300 if text.count("\n") > _MAX_LINES else "content")
    if event.get("event") == "answer":
        end = "complete" if event["finish_reason"] == "stop" else "cut off at the maximum length"
        verdict = f", {'✓ correct' if event['correct'] else '✕ wrong'}" if "correct" in event else ""
        markup.note(f"{event['tokens']} tokens, {end}{verdict}")
