"""The memory of a plan as an icicle: each program, below it what its memory is for, and the line of what there is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from dashboard.shared.charts.plan_figures import (
    KIND_NAMES,
    Kind,
    Palette,
    bytes_at,
    kind_of,
    label,
    new_figure,
    unit_of_bytes,
)
from dashboard.shared.words.verdicts import VERDICTS, part_name, program_name, verdict_at
from schemas.formats import percent, size
from schemas.reading import get_objects, get_str

MOST_PROGRAMS, MOST_PARTS = 8, 12
_ROW_PIXELS, _FRAME_PIXELS, _ABOVE_PIXELS, _LINE_PIXELS = 80, 92, 12, 14
_BEYOND = 6.0
"""A limit this many times the largest program is named, not drawn: the programs would be slivers beside it."""
_RIGHT = 0.8
"""Beyond this share of the width, words end at their line, so that they are not cut off."""

_PARENT, _PARENT_AT, _CHILD, _CHILD_AT = 0.22, 0.29, 0.46, -0.09
"""Heights and middles of the two rows of a program, of whose place each has 1."""


@dataclass(frozen=True, kw_only=True)
class BarSegment:
    """One part of a program's memory, from one byte to another."""

    name: str
    begin: float
    bytes: float
    because: str


@dataclass(frozen=True, kw_only=True)
class ProgramBar:
    """One program with its peak, its limit and what fills it."""

    name: str
    on_host: bool
    verdict: str
    peak: float
    limit: float | None
    error: float
    because: str
    segments: tuple[BarSegment, ...]


def programs(plan: Mapping[str, Any] | None) -> list[ProgramBar]:
    """Return the programs of a plan that have a peak; a plan of before 1.1 knows only the one that needs most."""
    stated = get_objects(plan, "programs")[:MOST_PROGRAMS]
    if not stated and plan is not None:
        stated = [{**plan, "name": "train", "peak_bytes": plan.get("need_bytes")}]
    found = []
    for one in stated:
        peak = bytes_at(one, "peak_bytes")
        if peak:
            found.append(
                ProgramBar(
                    name=program_name(get_str(one, "name")),
                    on_host=get_str(one, "on") == "host",
                    verdict=verdict_at(one, "verdict"),
                    peak=peak,
                    limit=bytes_at(one, "available_bytes") or None,
                    error=min(1.0, bytes_at(one, "error_fraction") or 0.0),
                    because=get_str(one, "because") or "",
                    segments=tuple(_segments(get_objects(one, "parts"))),
                )
            )
    return found


def kinds(found: Sequence[ProgramBar]) -> list[Kind]:
    """Return what the memory of these programs is held for, each once, in the order of a legend."""
    held = {kind_of(segment.name) for one in found for segment in one.segments}
    return [kind for kind in KIND_NAMES if kind in held]


def deciding(found: Sequence[ProgramBar]) -> ProgramBar | None:
    """Return the program that needs most on the device, None where none runs there."""
    return max((one for one in found if not one.on_host), key=lambda one: one.peak, default=None)


def memory(found: Sequence[ProgramBar], colours: Palette, *, observed: float | None = None) -> go.Figure:
    """Return the programs as an icicle.

    `observed` is the peak of a run in bytes, or None if it was not measured or of something else.
    """
    largest = max(one.peak * (1 + one.error) for one in found)
    near = [one.limit for one in found if one.limit is not None and one.limit <= _BEYOND * largest]
    right = max([largest, *near, observed or 0.0])
    divisor, unit = unit_of_bytes(right)
    figure = new_figure(colours, height=_FRAME_PIXELS + _ROW_PIXELS * len(found))
    _add_programs(figure, found, colours, divisor)
    _add_parts(figure, found, colours, divisor)
    is_above = found[0].limit is not None and found[0].limit <= _BEYOND * largest
    for row, one in enumerate(found):
        if one.limit is not None and one.limit <= _BEYOND * largest:
            _add_limit(figure, colours, at=one.limit / divisor, row=row)
    _say_limits(figure, found, colours, divisor, largest=largest, right=right)
    if observed is not None:
        anchor = "center" if observed < _RIGHT * right else "right"
        said = f"observed {size(observed)}"
        shift = _ABOVE_PIXELS + (_LINE_PIXELS if is_above else 0)
        _add_observed(figure, colours, at=observed / divisor, rows=len(found), words=said, anchor=anchor, shift=shift)
    figure.update_layout(margin_t=24 + _ABOVE_PIXELS + (_LINE_PIXELS if observed is not None and is_above else 0))
    figure.update_xaxes(title_text=f"{unit} on each device", range=[0, 1.04 * right / divisor], rangemode="tozero")
    figure.update_yaxes(
        tickvals=[-row for row in range(len(found))],
        ticktext=[label(one.name) + ("<br>on the host" if one.on_host else "") for one in found],
        range=[0.5 - len(found), 0.5],
        tickfont={"color": colours.ink},
    )
    return figure


def _segments(parts: Sequence[Mapping[str, Any]]) -> list[BarSegment]:
    """Return the parts side by side, the smallest of many as one."""
    known = [(part, value) for part in parts if (value := bytes_at(part, "bytes"))]
    shown, rest = known[:MOST_PARTS], sum(value for _, value in known[MOST_PARTS:])
    begin, found = 0.0, []
    for part, value in shown:
        name, because = get_str(part, "name") or "?", get_str(part, "because") or ""
        found.append(BarSegment(name=name, begin=begin, bytes=value, because=because))
        begin += value
    if rest:
        found.append(BarSegment(name="all others", begin=begin, bytes=rest, because=""))
    return found


def _add_programs(figure: go.Figure, found: Sequence[ProgramBar], colours: Palette, divisor: int) -> None:
    """Draw the upper row of each program: its peak, the error as a whisker, and the verdict in words."""
    figure.add_bar(
        orientation="h",
        x=[one.peak / divisor for one in found],
        y=[_PARENT_AT - row for row in range(len(found))],
        width=_PARENT,
        marker={"color": [colours.verdict(one.verdict) for one in found]},
        error_x={
            "type": "data",
            "array": [one.peak * one.error / divisor for one in found],
            "color": colours.quiet,
            "thickness": 1.5,
            "width": 4,
        },
        hovertext=[
            f"{label(one.name)}: {size(one.peak)} ± {percent(one.error)}, {VERDICTS[one.verdict].symbol} {one.verdict}"
            for one in found
        ],
        hoverinfo="text",
    )
    for row, one in enumerate(found):
        figure.add_annotation(
            x=0,
            y=_PARENT_AT + _PARENT / 2 - row,
            text=f"{VERDICTS[one.verdict].symbol} {one.verdict}, <b>{size(one.peak)}</b>",
            showarrow=False,
            xanchor="left",
            yanchor="bottom",
            font={"color": colours.quiet, "size": 12},
            borderpad=0,
        )


def _add_parts(figure: go.Figure, found: Sequence[ProgramBar], colours: Palette, divisor: int) -> None:
    """Draw the lower row of each program: what its memory is for."""
    cells = [(row, segment) for row, one in enumerate(found) for segment in one.segments]
    fills = [colours.part(segment.name) for _, segment in cells]
    figure.add_bar(
        orientation="h",
        x=[segment.bytes / divisor for _, segment in cells],
        base=[segment.begin / divisor for _, segment in cells],
        y=[_CHILD_AT - row for row, _ in cells],
        width=_CHILD,
        marker={"color": fills, "line": {"color": colours.paper, "width": 1}},
        text=[f"{label(part_name(segment.name))}<br>{size(segment.bytes)}" for _, segment in cells],
        textposition="inside",
        insidetextanchor="middle",
        textangle=0,
        textfont={"color": [colours.on(fill) for fill in fills], "size": 12},
        hovertext=[
            f"{label(part_name(segment.name))}: {size(segment.bytes)}<br>{label(segment.because)}"
            for _, segment in cells
        ],
        hoverinfo="text",
    )


def _add_limit(figure: go.Figure, colours: Palette, *, at: float, row: int) -> None:
    figure.add_shape(
        type="line", x0=at, x1=at, y0=-row - 0.42, y1=0.5 - row, line={"color": colours.ink, "width": 2, "dash": "dash"}
    )


def _say_limits(
    figure: go.Figure, found: Sequence[ProgramBar], colours: Palette, divisor: int, *, largest: float, right: float
) -> None:
    """Say what each line is where it changes from one program to the next."""
    before: float | None = None
    for row, one in enumerate(found):
        if one.limit is None or one.limit == before:
            continue
        before = one.limit
        is_drawn = one.limit <= _BEYOND * largest
        # One that lies far off is reported at the right end of its row.
        figure.add_annotation(
            x=one.limit / divisor if is_drawn else 1,
            xref="x" if is_drawn else "paper",
            y=0.5 - row if is_drawn else _CHILD_AT - row,
            # Above the words of the first program, which begin at the left and may reach so far.
            yshift=_ABOVE_PIXELS if is_drawn and row == 0 else 0,
            text=f"usable {size(one.limit)}",
            showarrow=False,
            yanchor="bottom" if is_drawn else "middle",
            xanchor="center" if is_drawn and one.limit < _RIGHT * right else "right",
            font={"color": colours.ink, "size": 12},
            # A line of what was observed may pass below the words.
            bgcolor=None if is_drawn else colours.paper,
        )


def _add_observed(
    figure: go.Figure, colours: Palette, *, at: float, rows: int, words: str, anchor: str, shift: int
) -> None:
    figure.add_shape(
        type="line", x0=at, x1=at, y0=0.5 - rows, y1=0.5, line={"color": colours.ink, "width": 2, "dash": "dot"}
    )
    figure.add_annotation(
        x=at,
        y=0.5,
        text=words,
        showarrow=False,
        xanchor=anchor,
        yanchor="bottom",
        yshift=shift,
        font={"color": colours.ink},
    )
