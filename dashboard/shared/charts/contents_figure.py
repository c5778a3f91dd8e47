"""What is handed in: a bar for each run, its parts by what they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from dashboard.shared.charts.plan_figures import Palette, label, new_figure, unit_of_bytes
from schemas.formats import size

_ROW_PIXELS, _EDGES_PIXELS = 44, 56


@dataclass(frozen=True, kw_only=True)
class Content:
    """The files of one kind in one row: a run, or what the bundle adds."""

    row: str
    kind: str
    files: int
    bytes: int


def colours_of(kinds: Sequence[str], colours: Palette) -> Mapping[str, str]:
    """Return a colour for each kind, in their order."""
    tints = [*colours.parts.values(), colours.tones["good"]]
    return {kind: tints[place % len(tints)] for place, kind in enumerate(kinds)}


def draw(contents: Sequence[Content], colours: Palette) -> go.Figure:
    """Return the picture, rows and kinds in the order in which they come."""
    rows, kinds = (list(dict.fromkeys(getattr(one, name) for one in contents)) for name in ("row", "kind"))
    whole = {row: sum(one.bytes for one in contents if one.row == row) for row in rows}
    divisor, unit = unit_of_bytes(max(whole.values(), default=0))
    picture = new_figure(colours, height=_EDGES_PIXELS + _ROW_PIXELS * len(rows))
    for kind, tint in colours_of(kinds, colours).items():
        some = [one for one in contents if one.kind == kind]
        picture.add_trace(
            go.Bar(
                x=[one.bytes / divisor for one in some],
                y=[rows.index(one.row) for one in some],
                orientation="h",
                name=kind,
                marker={"color": tint, "line": {"color": colours.paper, "width": 1}},
                hovertext=[f"{kind}: {size(one.bytes)} in {one.files}" for one in some],
                hovertemplate="%{hovertext}<extra></extra>",
            )
        )
    names = [f"<b>{label(row)}</b><br>{size(whole[row])}" for row in rows]
    picture.update_layout(barmode="stack", margin_t=8)
    picture.update_yaxes(tickvals=list(range(len(rows))), ticktext=names, range=[len(rows) - 0.5, -0.5])
    picture.update_xaxes(title_text=unit, rangemode="tozero")
    return picture


def describe(contents: Sequence[Content]) -> str:
    """Return the picture in words, for who cannot see it."""
    return "; ".join(f"{one.row}, {one.kind}: {size(one.bytes)}" for one in contents)
