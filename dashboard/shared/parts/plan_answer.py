"""The answer of a plan: in a sentence, what the memory and the time are for, and what to change, by one click."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from dashboard.shared.charts.plan_figures import KIND_NAMES
from dashboard.shared.charts.plan_memory import deciding, kinds, memory, programs
from dashboard.shared.charts.plan_session import session
from dashboard.shared.config import form
from dashboard.shared.parts import config_form, markup, plotted, problems
from dashboard.shared.tables import forecast, plan_time, planned
from dashboard.shared.words.verdicts import VERDICTS, verdict_at
from schemas.formats import duration, percent, size

_LARGEST = 8


def head(plan: Mapping[str, Any]) -> None:
    """Draw the answer in a sentence, and its figures below."""
    verdict = verdict_at(plan, "verdict")
    said = "" if verdict == "unsupported" else planned.need_in_words(plan)
    lines = "".join(f'<p class="tp-sub">{markup.safe(line)}</p>' for line in planned.figures_in_words(plan))
    st.html(
        f'<p class="tp-answer">{markup.safe(planned.sentence(plan))}</p>'
        f'<div class="tp-head">{markup.sign(VERDICTS, verdict)}<b>{markup.safe(said)}</b></div>{lines}'
    )


def memory_picture(plan: Mapping[str, Any], *, key: str, observed: float | None = None) -> None:
    """Draw what the memory of each program is for; nothing where the plan states none.

    `observed` is the peak of a run in bytes, or None if it was not measured or of something else.
    """
    found = programs(plan)
    if not found:
        return
    alt = "; ".join(f"{one.name}: {size(one.peak)} of {size(one.limit)}, {one.verdict}" for one in found)
    colours = plotted.colours()
    plotted.show(memory(found, colours, observed=observed), key=key, alt=f"Memory by program. {alt}")
    legend([(KIND_NAMES[kind], "", colours.parts[kind], "") for kind in kinds(found)])
    if (most := deciding(found)) is not None and most.because:
        markup.note(f"{most.name}: {most.because}.")


def memory_table(plan: Mapping[str, Any], *, key: str) -> None:
    """Draw the same as a table, folded."""
    found = programs(plan)
    table = st.expander("The same as a table", type="compact", key=f"{key} table", on_change="rerun")
    if table.open:
        with table:
            rows = [
                (one.name, part.name, size(part.bytes), percent(part.bytes / one.peak), part.because)
                for one in found
                for part in one.segments[:_LARGEST]
            ]
            markup.table(["Program", "Part", "Size on each device", "Share", "Because"], rows, numbers=[2, 3])


def session_picture(plan: Mapping[str, Any], *, key: str) -> None:
    """Draw what the time is spent on; nothing where the plan does not know how fast the device is."""
    found = [part for part in plan_time.parts(plan) if part.seconds.likely > 0]
    if not found:
        markup.note("How long it takes is not known: the plan states no speed of this device.")
        return
    whole = plan_time.total(found)
    alt = f"Time of the run by part, about {duration(whole.likely)}"
    colours = plotted.colours()
    plotted.show(session(found, plan_time.limits(plan), colours), key=key, alt=alt)
    legend([(part.name, duration(part.seconds.likely), colours.times[part.name], part.because) for part in found])


def largest_parts(plan: Mapping[str, Any]) -> None:
    """Draw the largest parts of the program that needs most."""
    markup.table(["Largest parts", "Size", "Because"], forecast.parts(plan)[:_LARGEST], numbers=[1])


def advice(plan: Mapping[str, Any], *, source: str, config: Mapping[str, Any]) -> None:
    """Draw what to change, each with a button that puts it into the form."""
    found = planned.advice(plan)
    if not found:
        return
    st.html('<p class="tp-sub"><b>What to change</b>, planned again for this device</p>')
    for number, one in enumerate(found):
        with st.container(horizontal=True, vertical_alignment="center", key=f"advice {number}"):
            settings = " + ".join(f"<code>{markup.safe(text)}</code>" for text in one.settings)
            st.html(
                f'<div class="tp-advice">{markup.sign(VERDICTS, one.verdict)} <span>{settings}</span>'
                f'<span class="tp-number">{markup.safe(_figures(one))}</span>'
                f'<span class="tp-dim">{markup.safe(one.costs)}</span></div>'
            )
            edits = form.parse_assignments(one.settings)
            st.button(
                "Put into the form",
                key=f"put {number}",
                disabled=not edits or form.has_assignments(config, one.settings),
                on_click=config_form.put,
                args=[source, edits],
            )


def findings(plan: Mapping[str, Any]) -> None:
    """Draw what else the run would spend badly."""
    problems.show(planned.problems(plan))


def legend(rows: Sequence[tuple[str, str, str, str]]) -> None:
    """Draw what colours mean: a name, its figure, its colour, and why it is so on hover."""
    items = "".join(
        f'<li title="{markup.safe(because)}"><i style="background:{colour}"></i>'
        f"{markup.safe(name)} <b>{markup.safe(figure)}</b></li>"
        for name, figure, colour, because in rows
    )
    st.html(f'<ul class="tp-legend">{items}</ul>')


def _figures(one: planned.Advice) -> str:
    if one.need is None or one.frees is None:
        return ""
    word = "frees" if one.frees >= 0 else "takes"
    return f"{size(one.need)}, {word} {size(abs(one.frees))}"
