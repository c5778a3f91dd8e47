"""The layouts of curves in other widths: two columns of panels in a wide window, no words beside them on a phone.

The browser chooses: no server knows the width of a window.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_WIDE_PIXELS, _NARROW_PIXELS = 1690, 560
"""Of the drawing itself: a window of 1,800 pixels leaves it 1,696."""
_LEFT_ENDS, _RIGHT_BEGINS, _RIGHT_TITLE = "55%", "57%", "53.5%"
_TITLE_ABOVE = 26

Option = dict[str, Any]


def other_widths(
    option: Mapping[str, Any], titles: Sequence[Option], bottom: int, *, gap: int, narrow: int
) -> list[Option]:
    """Return what is other than in an ECharts option where the drawing is wide or narrow, and the option itself else.

    Args:
        option: Grids, axes and series of the panels, the first above the others.
        titles: Of the panels.
        bottom: Where the last panel ends, in pixels from the top.
        gap: Pixels between panels.
        narrow: Pixels at the right of a panel without words.
    """
    grids, ends = option["grid"], [one for one in option["series"] if "endLabel" in one]
    axes = [_axis(axis, is_shown=axis["axisLabel"]["show"], name=axis["name"]) for axis in option["xAxis"]]
    made: Option = {"grid": grids, "xAxis": axes, "series": _ends(option["series"], are_shown=True)}
    made["title"] = [{"left": one["left"], "top": one["top"]} for one in titles]
    found: list[Option] = [{"option": made}]
    if ends:
        bare = {"grid": [grid | {"right": narrow} for grid in grids]}
        bare["series"] = _ends(option["series"], are_shown=False)
        found.insert(0, {"query": {"maxWidth": _NARROW_PIXELS}, "option": made | bare})
    if len(grids) > 1:
        found.insert(0, {"query": {"minWidth": _WIDE_PIXELS}, "option": made | _in_columns(option, bottom, gap)})
    return found


def _in_columns(option: Mapping[str, Any], bottom: int, gap: int) -> Option:
    """Return the panels in two columns, together as high as they were in one, so that each is about twice as high."""
    grids, name = option["grid"], option["xAxis"][-1]["name"]
    top, rows = grids[0]["top"], -(-len(grids) // 2)
    heights = [max(grid["height"] for grid in grids[2 * row : 2 * row + 2]) for row in range(rows)]
    scale = (bottom - top - gap * (rows - 1)) / sum(heights)
    placed, titles, axes = [], [], []
    for index, grid in enumerate(grids):
        row, column = divmod(index, 2)
        at = round(top + sum(heights[:row]) * scale + gap * row)
        sides = (
            {"left": _RIGHT_BEGINS, "right": grid["right"]} if column else {"left": grid["left"], "right": _LEFT_ENDS}
        )
        placed.append(grid | sides | {"top": at, "height": round(heights[row] * scale)})
        titles.append({"left": _RIGHT_TITLE if column else 0, "top": at - _TITLE_ABOVE})
        is_last = index + 2 >= len(grids)
        axes.append(_axis(option["xAxis"][index], is_shown=is_last, name=name if is_last else ""))
    return {"grid": placed, "title": titles, "xAxis": axes}


def _axis(axis: Option, *, is_shown: bool, name: str) -> Option:
    return {"name": name, "axisLabel": axis["axisLabel"] | {"show": is_shown}, "axisTick": {"show": is_shown}}


def _ends(series: Sequence[Option], *, are_shown: bool) -> list[Option]:
    return [{"endLabel": {"show": are_shown}} if "endLabel" in one else {} for one in series]
