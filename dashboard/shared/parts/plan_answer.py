"""Draw a plan: the answer, its memory, its time, and advice that one click applies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from dashboard.shared.charts import plan as figures
from dashboard.shared.config import form
from dashboard.shared.parts import config_form, markup, plotted, problems
from dashboard.shared.tables import forecast, planned
from dashboard.shared.words.verdicts import VERDICTS, part_name, verdict_at
from schemas.formats import duration, percent, size
from schemas.reading import get_str

_LARGEST = 8


def head(plan: Mapping[str, Any]) -> None:
    """Draw the answer in one sentence, and its details below."""
    found = VERDICTS[verdict_at(plan, "verdict")]
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
        figure = figures.memory(found, plotted.colours(), observed=observed)
        plotted.show_figure(figure, key=key, alt=f"Memory by program. {alt}")


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
    figure = figures.session(found, planned.time_limits(plan), plotted.colours())
    plotted.show_figure(figure, key=key, alt=f"Time of the run by phase: {alt}")


def largest_parts(plan: Mapping[str, Any]) -> None:
    """Draw the largest parts of the program that needs most."""
    markup.table(["Largest parts", "Size", "Computed as"], forecast.parts(plan)[:_LARGEST], numbers=[1])


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
                f'<div class="tp-advice">{markup.sign(VERDICTS, verdict_at(one, "verdict"))} <span>{codes}</span>'
                f'<span class="tp-number">{size(planned.bytes_at(one, "need_bytes"))}</span>'
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
    """Draw what is wrong with the planned run, or wasteful."""
    problems.show(planned.problems(plan))
