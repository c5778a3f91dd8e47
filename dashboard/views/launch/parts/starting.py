"""The third question of the page: start. It stays at the lower edge of the window, and Ctrl-Enter presses it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from dashboard.shared.config import form
from dashboard.shared.parts import launching, markup
from dashboard.shared.tables import planned
from dashboard.shared.words.verdicts import VERDICTS, verdict_at
from dashboard.views.launch.logic import several
from launch.jobs.folder import CONFIG, LOCAL
from launch.places import PLACES
from schemas.validate import check_value


def bar(resolved: Mapping[str, Any], plan: Mapping[str, Any] | None, *, sound: bool) -> bool:
    """Draw starting; return whether the reader wants to start what may not fit.

    Args:
        resolved: The configuration, complete.
        plan: What it needs. None: not known yet.
        sound: Whether it can begin.
    """
    with st.container(key="launch_start", horizontal=True, vertical_alignment="center"):
        said = "" if plan is None else markup.sign(VERDICTS, verdict_at(plan, "verdict"))
        needed = "" if plan is None else markup.safe(planned.need_in_words(plan))
        name = markup.safe(resolved.get("name", "run"))
        st.html(f'<p class="tp-step"><b>3</b>Start {name} {said} <span class="tp-dim">{needed}</span></p>')
        force = st.toggle("Start even if it may run out of memory", help="The run records that it was forced.")
        known = list(PLACES)
        place = st.selectbox("Where it runs", known, index=known.index(LOCAL)) if len(known) > 1 else LOCAL
        configs = _several(resolved)
        if st.button(
            "Start" if len(configs) == 1 else f"Start {len(configs)} runs",
            type="primary",
            icon=":material/play_arrow:",
            disabled=not sound or not configs,
            help=None if sound else "Fix the problems first.",
            shortcut="Ctrl+Enter",
        ):
            launching.start(*configs, force=force, place=place)
    return force


def _several(resolved: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Draw the values of one setting, and return a configuration for each; only the given one without such values."""
    fields = {field.dotted: field for field in several.variable()}
    with st.popover("Several runs", icon=":material/content_copy:"):
        name = st.selectbox("Setting", list(fields), index=list(fields).index("seed"), key="over", bind="query-params")
        written = st.text_input("Values", placeholder="0, 1, 2", help=_VALUES, key="values", bind="query-params")
        if not (written or "").strip():
            return [resolved]
        configs, wrong = several.over(resolved, fields[name], written)
        said = [several.sentence(wrong, fields[name])] if wrong else []
        if len(configs) > several.MOST:
            said.append(f"{len(configs)} values are given; one click starts at most {several.MOST}.")
        found = [one for config in configs[: several.MOST] for one in check_value(form.KIND, config, file=CONFIG)]
        said += [problem.what for problem in found if problem.severity == "error"]
        for line in said:
            markup.note(line)
        markup.note(", ".join(str(config["name"]) for config in configs[: several.MOST]))
        return [] if said else configs


_VALUES = (
    "Separated by commas, each as in YAML. Each value is a run of its own, named after it; they wait in the queue."
)
