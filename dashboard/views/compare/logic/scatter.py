"""A scatter as an ECharts drawing: a point for each run, groups told apart by colour and by symbol."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dashboard.shared.charts.echarts import in_ink
from dashboard.shared.words.text import shortened
from dashboard.views.compare.logic.relation import Scale
from schemas.problems.formats import NOTHING

HEIGHT = 460
SYMBOLS = (
    "circle", "diamond", "rect", "triangle", "emptyCircle", "emptyDiamond", "emptyRect", "emptyTriangle",
)  # fmt: skip
"""Symbols of the groups."""
_LONGEST = 26
_PIXELS_PER_LETTER = 6
_NUMBERS_PIXELS = 44


@dataclass(frozen=True, kw_only=True)
class Scatter:
    """What is drawn of which runs.

    Attributes:
        members: For each group in the order of its values, its word and the numbers of its runs; one group without a
            word where nothing tells the runs apart.
        x: What lies across.
        y: What lies upward.
        groups: What tells the runs apart.
        logarithmic: The scales that are drawn logarithmic.
        beyond: Numbers of the runs that state both and have no place on a logarithmic axis.
    """

    members: tuple[tuple[str, tuple[int, ...]], ...]
    x: Scale
    y: Scale
    groups: Scale | None
    logarithmic: frozenset[str]
    beyond: tuple[int, ...]

    def title_of(self, word: str) -> str:
        """Return what a group is called where groups are told apart; empty where they are not."""
        return "" if self.groups is None else f"{self.groups.name}: {word}"

    def runs_at(self, selected: Sequence[Mapping[str, Any]]) -> list[int]:
        """Return the numbers of the runs whose points are chosen, as `st.echarts_chart` says which are."""
        return sorted(
            self.members[part["series_index"]][1][place] for part in selected for place in part["data_indices"]
        )


def scatter(x: Scale, y: Scale, groups: Scale | None, *, logarithmic: frozenset[str] = frozenset()) -> Scatter:
    """Return what a scatter shows: the runs that have a place on both axes.

    Args:
        x: What lies across.
        y: What lies upward, of the same runs.
        groups: What tells the runs apart. None: nothing.
        logarithmic: Names of scales to be drawn logarithmic; those of words are not, and zero has no place on one.
    """
    logs = frozenset(scale.name for scale in (x, y) if scale.name in logarithmic and not scale.words)
    members: dict[float | None, list[int]] = {}
    beyond = []
    for index, places in enumerate(zip(x.places, y.places, strict=True)):
        if None in places:
            continue
        if all(_has_place(scale, index, is_log=scale.name in logs) for scale in (x, y)):
            members.setdefault(None if groups is None else groups.places[index], []).append(index)
        else:
            beyond.append(index)
    # By value; those that state none come last.
    ordered = sorted(members, key=lambda place: math.inf if place is None else place)
    worded = tuple(("" if groups is None else _word(groups, place), tuple(members[place])) for place in ordered)
    return Scatter(members=worded, x=x, y=y, groups=groups, logarithmic=logs, beyond=tuple(beyond))


def drawing(shown: Scatter, names: Sequence[str], colours: Sequence[str], *, ink: str, words: str) -> dict[str, Any]:
    """Return the scatter as ECharts takes it.

    Args:
        shown: What it shows.
        names: Name of each run.
        colours: A colour for each group.
        ink: Colour of the ring round a chosen point.
        words: Colour of the words beside it.
    """
    series = [
        _points(shown, members, names, name=shown.title_of(word))
        | {"select": {"itemStyle": {"opacity": 1, "borderWidth": 2.5, "borderColor": ink}}}
        | {"symbol": symbol_of(number), "itemStyle": {"color": colours[number], "opacity": 0.8}}
        for number, (word, members) in enumerate(shown.members)
    ]
    left = _NUMBERS_PIXELS
    if shown.y.words:
        left = _PIXELS_PER_LETTER * max(len(shortened(word, _LONGEST)) for word in shown.y.words)
    option = {
        "animation": False,
        "grid": {"left": 30, "right": 24, "top": 84 if shown.groups else 36, "bottom": 52},
        "legend": {"show": shown.groups is not None, "type": "scroll", "left": 0, "right": 8, "top": 28}
        | {"itemWidth": 12, "itemHeight": 12},
        "tooltip": {"trigger": "item"},
        "xAxis": _axis(shown.x, shown.logarithmic) | {"nameGap": 32},
        "yAxis": _axis(shown.y, shown.logarithmic) | {"nameGap": left + 10},
        "dataZoom": [
            # Points are chosen by their number, so those out of sight stay.
            {"type": "inside", f"{axis}AxisIndex": 0, "zoomOnMouseWheel": "ctrl", "filterMode": "none"}
            for axis in "xy"
        ],
        "brush": {
            "xAxisIndex": "all",
            "yAxisIndex": "all",
            "throttleType": "debounce",
            "throttleDelay": 200,
            "outOfBrush": {"opacity": 0.15},
        },
        "toolbox": {
            "right": 8,
            "top": -4,
            "itemSize": 13,
            "feature": {
                "dataZoom": [
                    {"type": "inside", "xAxisIndex": 0, "zoomOnMouseWheel": "ctrl"},
                    {"type": "inside", "yAxisIndex": 0, "zoomOnMouseWheel": "ctrl"},
                ],
                "brush": {"type": ["rect", "polygon", "clear"]},
                "saveAsImage": {"name": "scatter", "pixelRatio": 2},
            },
        },
        "series": series,
    }
    in_ink(option, words)
    return option


def symbol_of(number: int) -> str:
    """Return the symbol of a group: from the ninth on, when colours come again, each has another than before."""
    return SYMBOLS[(number + number // len(SYMBOLS)) % len(SYMBOLS)]


def _has_place(scale: Scale, index: int, *, is_log: bool) -> bool:
    place = scale.places[index]
    return place is not None and (place > 0 or not is_log)


def _word(groups: Scale, place: float | None) -> str:
    if place is None:
        return NOTHING
    return groups.words[int(place)] if groups.words else repr(place).removesuffix(".0")


def _points(shown: Scatter, members: Sequence[int], names: Sequence[str], *, name: str) -> dict[str, Any]:
    return {
        "type": "scatter",
        "name": name,
        "dimensions": [shown.x.name, shown.y.name, "run"],
        "encode": {"x": 0, "y": 1, "itemName": 2, "tooltip": [0, 1]},
        "data": [[shown.x.places[index], shown.y.places[index], names[index]] for index in members],
        "symbolSize": 10,
        "selectedMode": "multiple",
    }


def _axis(scale: Scale, logarithmic: frozenset[str]) -> dict[str, Any]:
    axis: dict[str, Any] = {"name": scale.name, "nameLocation": "middle", "axisLabel": {"fontSize": 11}}
    if scale.words:
        return axis | {"type": "category", "data": [shortened(word, _LONGEST) for word in scale.words]}
    return axis | {"type": "log" if scale.name in logarithmic else "value", "scale": True}
