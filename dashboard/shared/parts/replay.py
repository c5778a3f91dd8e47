"""Replay a run or a bundle from a page, or ask its model new questions, and show the receipt."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import streamlit as st

from dashboard.shared import reading, state
from dashboard.shared.parts import gate, markup
from dashboard.shared.words import date_and_time
from evidence.bundle.secrets import strip_invisible
from evidence.proof.verification import explain_receipt
from launch import tasks
from launch.process import format_command
from launch.tasks import Task, TaskResult, Verb
from schemas.formats import duration
from schemas.reading import get_number, get_objects, get_str

TICK_SECONDS = 1.0
_SAMPLE, _WHOLE, _QUESTIONS = "Random sample", "Whole run", "New questions"
_WAYS = {
    _SAMPLE: "Ten answers regenerated and all others scored; first and last segment, and random segments in between.",
    _WHOLE: "All answers, and the whole training from its seed. This takes as long as the run took.",
    _QUESTIONS: "Ten recorded answers, and new questions generated from your seed. No training step is replayed.",
}
_VERDICTS = {"identical": "✓ identical", "within tolerance": "≈ within tolerance", "different": "✕ different"}


def draw_replay(path: Path, sha256: str, *, key: str) -> None:
    """Draw what to replay of a run folder or bundle, the equivalent command, progress, and the receipt.

    `sha256` is the hash of the run's manifest or of the bundle, `key` the prefix of the keys of the widgets.
    """
    way = st.segmented_control("What to replay", list(_WAYS), default=_SAMPLE, required=True, key=f"{key} way")
    markup.note(_WAYS[way])
    verb, options = _choose_options(way, key)
    st.code(strip_invisible(format_command([verb, str(path), *options])), language=None, wrap_lines=True)
    task = tasks.replay_task(state.root(), path, sha256, verb, options)
    is_running = task.result().state == "running"
    st.fragment(run_every=TICK_SECONDS if is_running else None)(_draw_task)(task, was_running=is_running)


def _choose_options(way: str, key: str) -> tuple[Verb, list[str]]:
    """Draw the settings of a replay, and return its command and options."""
    if way == _WHOLE:
        return "replay", ["--all"]
    with st.container(horizontal=True):
        if way == _SAMPLE:
            minutes = st.number_input("Minutes at most", 1, 360, 5, key=f"{key} minutes", width=160)
            return "replay", ["--minutes", str(minutes)]
        number = st.number_input("Questions", 1, 500, 20, key=f"{key} questions", width=140)
        seed = st.number_input("Your seed", 0, 2**31 - 1, 1, key=f"{key} seed", width=180)
        return "challenge", ["--generate", str(number), "--seed", str(seed)]


def _draw_task(task: Task, *, was_running: bool) -> None:
    result = task.result()
    if was_running and result.state != "running":
        reading.look_again()  # the receipt may change the grade
        st.rerun()
    if result.state == "running":
        _draw_progress(task, result)
        return
    if result.answer is not None:
        _draw_receipt(result.answer)
    elif result.state == "failed":
        code = "" if result.exit_code is None else f" with exit code {result.exit_code}"
        markup.note(f"The replay failed{code}.")
        lines = [line for line in result.output.splitlines() if not line.startswith("{")]
        st.code("\n".join(lines), language=None, wrap_lines=True)
    if not gate.may_operate():
        markup.note("You are logged in as a viewer. Only operators can start a replay.")
    label, look = "Replay" if result.state == "none" else "Replay again", {"icon": ":material/replay:"}
    gate.act(label, task.start, "The replay could not be started", type="primary", **look)


def _draw_progress(task: Task, result: TaskResult) -> None:
    text, fraction = "Starting", 0.0
    for event in tasks.parse_events(result.output):
        done, total = event.get("step", event.get("done")), event.get("of")
        if event.get("event") in {"step", "items"} and done and total:
            text, fraction = f"{'Step' if event['event'] == 'step' else 'Answer'} {done} of {total}", done / total
    st.progress(min(1.0, fraction), text=f"{text}, {duration(round(result.seconds or 0))}")
    failed = "The replay could not be cancelled"
    gate.act("Cancel", task.cancel, failed, icon=":material/close:", key="cancel replay")


def _draw_receipt(receipt: Mapping[str, Any]) -> None:
    """Draw the result of a replay, its segments, its meaning, and the answers that differ."""
    verdict, made_at = get_str(receipt, "result") or "", get_str(receipt, "made_at")
    summary = f"{_VERDICTS.get(verdict, verdict)}: {get_str(receipt, 'said') or ''}"
    markup.note(f"{summary} {date_and_time(made_at, reading.browser_timezone())}")
    segments = []
    for segment in get_objects(receipt, "covered", "segments"):
        # A segment begins after its first step; without steps, it is a saved state.
        first, last = (get_number(segment, f"{end}_step") or 0 for end in ("first", "last"))
        steps = f"{first + 1:,.0f} to {last:,.0f}" if first + 1 < last else f"{last:,.0f}"
        segments.append(
            {
                "Steps": f"state after step {last:,.0f}" if first == last else steps,
                "Result": _VERDICTS.get(get_str(segment, "verdict") or "", "not replayed"),
                "First difference": get_str(segment, "difference") or "",
            }
        )
    if segments:
        st.dataframe(segments, hide_index=True)
    if "marks" in receipt:
        markup.bullets("What this shows", explain_receipt(receipt))
    names = {"Question": "prompt", "Expected": "expected", "Answer": "output_text"}
    failures = get_objects(receipt, "score", "failures")
    if rows := [{title: str(row.get(key) or "") for title, key in names.items()} for row in failures]:
        st.dataframe(rows, hide_index=True)
