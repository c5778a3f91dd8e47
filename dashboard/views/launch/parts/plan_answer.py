"""Planning on the launch page: ask what a configuration needs, and show the answer when it comes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import streamlit as st

from dashboard.shared.parts import markup
from dashboard.shared.parts.launching import trying
from dashboard.shared.tables import forecast
from dashboard.shared.words.grades import Sign
from launch.planning import Planning, ask, planning
from schemas.problems.formats import size
from schemas.reading.values import flag_at, number_at, objects_at, text_at

TICK_SECONDS = 1.0

_SIGNS = {
    "fits": Sign(symbol="✓", tone="good", meaning="It needs less memory than there is."),
    "tight": Sign(
        symbol="!",
        tone="poor",
        meaning="It may run out of memory: the plan's error reaches beyond what there is.",
    ),
    "does not fit": Sign(symbol="✕", tone="bad", meaning="It needs more memory than there is; starting is refused."),
    "unknown": Sign(symbol="?", tone="poor", meaning="How much memory there is is not known."),
}
_LARGEST = 5
_CHANGES = 6


def show(root: Path, config: Mapping[str, Any], *, allowed: bool) -> None:
    """Draw the button that asks for a plan of a checked configuration, and what is known of its answer."""
    found = planning(root, config)
    running = found.state == "running"
    if st.button(
        "Check again" if found.state in {"answered", "failed"} else "Check memory",
        icon=":material/calculate:",
        disabled=running or not allowed,
        help="Says whether the run fits on the device, what its memory is for, and what would make it smaller. "
        "Nothing is trained.",
        width="stretch",
    ):
        with trying("The memory could not be checked"):
            ask(root, config)
            st.rerun()
    st.fragment(run_every=TICK_SECONDS if running else None)(_answer)(root, config, was_running=running)


def _answer(root: Path, config: Mapping[str, Any], *, was_running: bool) -> None:
    found = planning(root, config)
    if found.state == "running":
        markup.note("Checking. This takes seconds, and the answer is kept if you leave this page.")
        return
    if was_running:
        st.rerun()
    if found.state == "failed":
        _failed(found)
    elif found.plan is not None:
        _plan(found.plan)


def _failed(found: Planning) -> None:
    code = "was stopped" if found.exit_code is None else f"ended with exit code {found.exit_code}"
    markup.note(f"The check gave no answer: it {code}.")
    if found.output:
        st.code(found.output, language=None, wrap_lines=True)


def _plan(plan: Mapping[str, Any]) -> None:
    verdict = (text_at(plan, "verdict") or "unknown").replace("_", " ")
    need, available = number_at(plan, "need_bytes"), number_at(plan, "available_bytes")
    error = number_at(plan, "error_fraction")
    said = f"{size(need)} needed on each device" + (f" ± {error * 100:.0f} %" if error is not None else "")
    target = f"{number_at(plan, 'target', 'devices') or 1:.0f} × {text_at(plan, 'target', 'name') or 'unknown device'}"
    how = "read from the compiled program" if text_at(plan, "method") == "compiler" else "added up from formulas"
    with st.container(border=True):
        st.html(
            f'<div class="tp-head">{markup.sign(_SIGNS, verdict)}<b>{markup.safe(said)}</b></div>'
            f'<p class="tp-sub">{markup.safe(f"{size(available)} available on {target}; {how}.")}</p>'
        )
        markup.table(["Largest parts", "Size", "Because"], forecast.parts(plan)[:_LARGEST], numbers=[1])
        changes = objects_at(plan, "changes")[:_CHANGES]
        if changes:
            markup.table(
                ["What would make it smaller", "Saves", "Fits then"],
                [
                    (
                        text_at(change, "set") or "",
                        size(number_at(change, "saves_bytes")),
                        {True: "✓ yes", False: "✕ no", None: "?"}[flag_at(change, "fits")],
                    )
                    for change in changes
                ],
                numbers=[1],
            )
