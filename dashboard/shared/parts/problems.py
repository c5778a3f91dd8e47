"""Draw problems, the worst first: what, why, what to do next, and where."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import streamlit as st

from dashboard.shared.parts.markup import safe, words
from schemas.problems import Action, Problem, worst_first
from schemas.render import next_step

_EDGES = {"error": "tp-edge-bad", "warning": "tp-edge-poor", "note": ""}
SHOWN = 50  # problems drawn at most; a broken file can have one in every line
BUILD_OPTIONS: Mapping[Action, str] = {
    "allow_partial": "labelled as partial",
    "redact": "with secrets and home folders masked",
}
"""Actions that the Package page offers as buttons."""

ACTIONS: Mapping[Action, str] = {
    **{action: f"Or press “Build, {option}” on the Package page." for action, option in BUILD_OPTIONS.items()},
    "resume": "Press Resume on its page.",
}
"""How other pages describe each action."""


def show(problems: Iterable[Problem]) -> None:
    """Draw problems; nothing without any."""
    ordered = worst_first(problems)
    if not ordered:
        return
    st.html("".join(_markup(problem) for problem in ordered[:SHOWN]))
    if len(ordered) > SHOWN:
        st.caption(f"{len(ordered) - SHOWN:,} more are not shown. Run `trainproof check` to see all.")


def _markup(problem: Problem) -> str:
    place = " ".join(
        part
        for part in (
            problem.file,
            f"line {problem.line}" if problem.line is not None else "",
            f"at {problem.key_path}" if problem.pointer else "",
        )
        if part
    )
    lines = [
        f'<p class="tp-what">{safe(problem.severity.capitalize())} {safe(problem.code)}: {words(problem.what)}</p>'
    ]
    if problem.why:
        lines.append(f"<p>{words(problem.why)}</p>")
    if problem.expected:
        lines.append(f"<p>Expected: {words(problem.expected)}.</p>")
    lines.append(f"<p>Next: {words(next_step(problem.next, problem.action, ACTIONS))}</p>")
    if place:
        lines.append(f'<p class="tp-place">{safe(place)}</p>')
    return f'<div class="tp-problem {_EDGES[problem.severity]}">{"".join(lines)}</div>'
