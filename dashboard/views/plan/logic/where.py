"""One configuration on every target: who can run it, how full it is there and how long it takes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from dashboard.shared.charts.plan_figures import PATTERNS, Palette, bytes_at, label, limit_line, new_figure
from dashboard.shared.tables.plan_time import Estimate, band_at
from dashboard.shared.words.verdicts import VERDICTS, method_at, verdict_at
from schemas.formats import NOTHING, duration, size
from schemas.reading import get_number, get_objects, get_str

MOST_TARGETS = 40
HEAD = ("Verdict", "Target", "Need", "Usable", "Time", "Of a session", "Of a week", "How it is known")
_ORDER = tuple(VERDICTS)
_FULLEST, _LIMIT_AND_A_BIT = 2.0, 1.2
"""A bar ends at twice the limit; its words state how far it would go on. Where all are below it, the axis ends
nearby."""
_TICKS = [0, 50, 100, 150, 200]
_ROW_PIXELS, _FRAME_PIXELS = 24, 84
_NEED_PIXELS, _RIGHT_PIXELS = 96, 150
"""Where the columns of need and time end, right of the bars."""
_TOP = 0.4
"""Where words above the rows stand; what is beyond the end of the axis, at 0.5, is not drawn."""
_HOUR_SECONDS = 3600.0
GIB = 2**30


@dataclass(frozen=True, kw_only=True)
class TargetRow:
    """A target and what the configuration needs there, of one device."""

    name: str
    title: str
    verdict: str
    need: float | None
    limit: float | None
    error: float
    hours: Estimate | None
    session: Estimate | None
    week: Estimate | None
    because: str
    method: str

    @property
    def fraction(self) -> float | None:
        """The need over what is usable."""
        return None if self.need is None or not self.limit else self.need / self.limit


def places(
    answer: Mapping[str, Any] | None, *, plan: Mapping[str, Any] | None = None, chosen: str = "?"
) -> list[TargetRow]:
    """Return the targets of an answer, those that can run it first, and of these the emptiest first.

    `plan` is of the machine `chosen`, which it knows better than the answer of `--where`, if that has it at all.
    """
    found = {one.name: one for one in map(_place, get_objects(answer, "where")[:MOST_TARGETS])}
    if plan is not None and not (chosen in found and verdict_at(plan, "verdict") == "unsupported"):
        found[chosen] = _place({**plan, **_times(plan), "target": chosen, "title": get_str(plan, "target", "title")})
    return sorted(
        found.values(), key=lambda one: (_ORDER.index(one.verdict), one.fraction is None, one.fraction or 0.0)
    )


def in_one_sentence(found: Sequence[TargetRow]) -> str:
    """Return where it can run: `It fits on 9 of 17 targets. Free within a weekly quota: kaggle-tpu-v5e-8`."""
    fitting = [one for one in found if one.verdict == "fits"]
    tight = [one for one in found if one.verdict == "tight"]
    if not fitting:
        near = f" It is tight on {', '.join(one.name for one in tight)}." if tight else ""
        return f"It fits on none of {len(found)} targets.{near}"
    free = [one.name for one in fitting if one.week is not None]
    quota = f" Free within a weekly quota: {', '.join(free)}." if free else ""
    return f"It fits on {len(fitting)} of {len(found)} targets.{quota}"


def why_unsupported(found: Sequence[TargetRow]) -> list[str]:
    """Return for each reason who cannot run it: `t4, p100: precision.params is bfloat16, which it does not have`."""
    reasons: dict[str, list[str]] = {}
    for one in found:
        if one.verdict == "unsupported" and one.because:
            reasons.setdefault(re.sub(rf"\b{re.escape(one.name)}\b", "it", one.because), []).append(one.name)
    return [f"{', '.join(names)}: {reason}" for reason, names in reasons.items()]


def known_by(found: Sequence[TargetRow], chosen: str) -> str:
    """Return how needs are known: `Added up from formulas; t4: read from the compiled program.`; empty if unsaid."""
    others = {one.method for one in found if one.name != chosen and one.method}
    own = next((one.method for one in found if one.name == chosen), "")
    if len(others) != 1:
        return ""
    [method] = others
    said = f"{method[:1].upper()}{method[1:]}"
    return f"{said}; {chosen}: {own}." if own and own != method else f"{said}."


def rows(found: Sequence[TargetRow]) -> list[tuple[str, ...]]:
    """Return the targets as rows: verdict, target, need, usable, hours, of a session, of a week, how it is known."""
    return [
        (
            f"{VERDICTS[one.verdict].symbol} {one.verdict}",
            one.name,
            size(one.need),
            size(one.limit),
            (NOTHING if one.hours is None else f"about {duration(one.hours.likely * _HOUR_SECONDS)}"),
            _share(one.session),
            _share(one.week),
            one.method or one.because,
        )
        for one in found
    ]


def bars(found: Sequence[TargetRow], colours: Palette, *, chosen: str | None = None) -> go.Figure:
    """Return the targets as bars against their limits, which are one line since each bar is in percent of its own.

    Targets of one verdict stand together under its word; the need and the time of each stand in columns on the right.

    The name of the target `chosen` is bold.
    """
    heights, headings = _heights(found)
    rows = len(found) + len(headings)
    figure = new_figure(colours, height=_FRAME_PIXELS + _ROW_PIXELS * rows)
    _add_bars(figure, found, heights, colours)
    limit_line(figure, colours, at=100, rows=(0.5 - rows, _TOP), words="usable")
    for verdict, height in headings.items():
        count = sum(one.verdict == verdict for one in found)
        _say(figure, colours, f"<b>{VERDICTS[verdict].symbol} {verdict}</b> ({count})", at=height, shift=0, left=True)
    for one, height in zip(found, heights, strict=True):
        if one.fraction is not None:
            _say(
                figure,
                colours,
                (f"{(one.need or 0) / GIB:,.2f} / {(one.limit or 0) / GIB:,.2f}"),
                at=height,
                shift=_NEED_PIXELS,
            )
        if one.hours is not None and one.verdict in {"fits", "tight"}:
            _say(figure, colours, _short(one.hours.likely), at=height, shift=_RIGHT_PIXELS)
    _say(figure, colours, "GiB", at=_TOP, shift=_NEED_PIXELS, above=True)
    _say(figure, colours, "time", at=_TOP, shift=_RIGHT_PIXELS, above=True)
    figure.update_xaxes(title_text="% of what is usable", range=[0, 100 * _end(found)], tickvals=_TICKS)
    figure.update_yaxes(
        tickvals=heights,
        ticktext=[f"<b>{label(one.name)}</b>" if one.name == chosen else label(one.name) for one in found],
        range=[0.5 - rows, 0.5],
        tickfont={"color": colours.ink},
    )
    figure.update_layout(margin_r=_RIGHT_PIXELS + 4, margin_t=34)
    return figure


def _end(found: Sequence[TargetRow]) -> float:
    """Return where the axis ends, as a multiple of the limit."""
    fullest = max(((one.fraction or 0.0) * (1 + one.error) for one in found), default=0.0)
    return _LIMIT_AND_A_BIT if fullest <= _LIMIT_AND_A_BIT else _FULLEST


def _heights(found: Sequence[TargetRow]) -> tuple[list[int], dict[str, int]]:
    """Return where each target stands, from 0 downwards, and where the word of each verdict does, above its first.

    Verdicts fits, fits, tight: targets at −1, −2 and −4, words at 0 and −3.
    """
    heights: list[int] = []
    headings: dict[str, int] = {}
    for one in found:
        if one.verdict not in headings:
            headings[one.verdict] = -len(heights) - len(headings)
        heights.append(-len(heights) - len(headings))
    return heights, headings


def _add_bars(figure: go.Figure, found: Sequence[TargetRow], heights: Sequence[int], colours: Palette) -> None:
    fractions = [one.fraction or 0.0 for one in found]
    figure.add_bar(
        orientation="h",
        x=[100 * min(fraction, _FULLEST) for fraction in fractions],
        y=heights,
        width=0.62,
        marker={
            "color": [colours.verdict(one.verdict) for one in found],
            "pattern": {
                "shape": [PATTERNS[one.verdict] for one in found],
                "fgcolor": colours.paper,
                "size": 7,
                "solidity": 0.35,
                "fillmode": "overlay",
            },
        },
        error_x={
            "type": "data",
            "array": [
                100 * fraction * one.error if fraction <= _FULLEST else 0.0
                for one, fraction in zip(found, fractions, strict=True)
            ],
            "color": colours.quiet,
            "thickness": 1.5,
            "width": 3,
        },
        hovertext=[_hover(one) for one in found],
        hoverinfo="text",
    )


def _times(plan: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what a plan states of time, which the answer of `--where` has beside the memory."""
    stated = plan.get("time")
    return stated if isinstance(stated, Mapping) else {}


def _place(one: Mapping[str, Any]) -> TargetRow:
    name = get_str(one, "target") or "?"
    return TargetRow(
        name=name,
        title=get_str(one, "title") or name,
        verdict=verdict_at(one, "verdict"),
        need=bytes_at(one, "need_bytes") or None,
        limit=bytes_at(one, "available_bytes"),
        error=min(1.0, max(0.0, get_number(one, "error_fraction") or 0.0)),
        hours=band_at(one, "hours"),
        session=band_at(one, "session_fraction"),
        week=band_at(one, "week_fraction"),
        because=get_str(one, "because") or "",
        method=method_at(one),
    )


def _say(
    figure: go.Figure, colours: Palette, text: str, *, at: float, shift: int, left: bool = False, above: bool = False
) -> None:
    """Write into the column that ends so many pixels right of the bars, or at their beginning."""
    figure.add_annotation(
        x=0 if left else 1,
        xref="paper",
        y=at,
        text=text,
        showarrow=False,
        xanchor="left" if left else "right",
        yanchor="bottom" if above else "middle",
        xshift=4 if left else shift,
        font={"color": colours.ink if left else colours.quiet, "size": 12},
        # In a narrow window a heading reaches over the line of what is usable.
        bgcolor=colours.paper if left else None,
        borderpad=0,
    )


def _short(hours: float) -> str:
    """Return a time in few letters: `5.2 h`, `12 min`, `8 s`."""
    if hours >= 1:
        return f"{hours:,.1f} h"
    return f"{hours * 60:.0f} min" if hours * 60 >= 1 else f"{hours * _HOUR_SECONDS:.0f} s"


def _hover(one: TargetRow) -> str:
    lines = [f"{label(one.title)}: {VERDICTS[one.verdict].symbol} {one.verdict}", label(one.because)]
    return "<br>".join(line for line in lines if line != "?")


def _share(band: Estimate | None) -> str:
    return NOTHING if band is None else f"{100 * band.likely:.0f} %" if band.likely >= 0.01 else "< 1 %"
