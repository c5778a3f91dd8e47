"""Batch by length as a heat map: what each size needs, whether it fits, and the frontier between those two."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from dashboard.shared.charts.plan_figures import Palette, bytes_at, new_figure, unit_of_bytes
from dashboard.shared.words.grades import Tone
from dashboard.shared.words.verdicts import VERDICTS, method_at, verdict_at
from schemas.formats import count, size
from schemas.reading import get_number, get_objects

MOST_SIDE = 24
"""Sizes on one side of the map; what a stranger's document has more is left out."""

_LARGEST = 2**40
_MOST_IN_CELL = 100_000
_ROW_PIXELS, _FRAME_PIXELS = 38, 96
_TONES: tuple[Tone, ...] = ("good", "poor", "bad", "quiet")


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One size: sequences of a microbatch on each device, tokens of a sequence."""

    batch: int
    length: int
    verdict: str
    need: float | None
    method: str


@dataclass(frozen=True, kw_only=True)
class Grid:
    """The sizes that were planned; a pair that is not among the cells was not."""

    batches: tuple[int, ...]
    lengths: tuple[int, ...]
    cells: Mapping[tuple[int, int], Cell]
    limit: float | None


def grid(answer: Mapping[str, Any] | None) -> Grid | None:
    """Return the map of an answer, or None if it is missing."""
    found: dict[tuple[int, int], Cell] = {}
    for one in get_objects(answer, "grid", "cells")[: MOST_SIDE * MOST_SIDE]:
        batch, length = _integer(one, "microbatch_size"), _integer(one, "max_length")
        if batch and length:
            need, verdict = bytes_at(one, "need_bytes"), verdict_at(one, "verdict")
            found[batch, length] = Cell(batch=batch, length=length, verdict=verdict, need=need, method=method_at(one))
    if not found:
        return None
    batches = tuple(sorted({batch for batch, _ in found}))[:MOST_SIDE]
    lengths = tuple(sorted({length for _, length in found}))[:MOST_SIDE]
    return Grid(batches=batches, lengths=lengths, cells=found, limit=bytes_at(answer, "grid", "available_bytes"))


def largest_that_fits(found: Grid) -> list[int]:
    """Return for each length how many of the batches fit, counted from the smallest up to the first that does not.

    Batches 1, 2, 4 of which 1 and 2 fit at the first length and none at the second: `[2, 0]`.
    """
    heights = []
    for length in found.lengths:
        fitting = 0
        for batch in found.batches:
            cell = found.cells.get((batch, length))
            if cell is None or cell.verdict != "fits":
                break
            fitting += 1
        heights.append(fitting)
    return heights


def frontier(found: Grid) -> tuple[list[float], list[float]]:
    """Return the line above the sizes that fit, in numbers of columns and rows: column 0 is from −0.5 to 0.5.

    Two columns of heights 2 and 0: from (−0.5, 1.5) to (0.5, 1.5), down to (0.5, −0.5) and on to (1.5, −0.5).
    """
    across: list[float] = []
    up: list[float] = []
    for column, height in enumerate(largest_that_fits(found)):
        across += [column - 0.5, column + 0.5]
        up += [height - 0.5, height - 0.5]
    return across, up


def most_tokens(found: Grid) -> Cell | None:
    """Return the size that fits with the most tokens in a microbatch, of several the one with the longest sequences."""
    fitting = [cell for cell in found.cells.values() if cell.verdict == "fits"]
    return max(fitting, key=lambda cell: (cell.batch * cell.length, cell.length), default=None)


def is_in(found: Grid, batch: int | None, length: int | None) -> bool:
    """Return whether a size is one of the map's."""
    return batch in found.batches and length in found.lengths


def method_of(found: Grid) -> str:
    """Return how all needs of the map are known, empty where they differ."""
    methods = {cell.method for cell in found.cells.values()}
    return methods.pop() if len(methods) == 1 else ""


def in_one_sentence(found: Grid) -> str:
    """Return what the map states: `Most tokens that fit in a microbatch: 16 × 512 tokens = 8,192, 13.97 GiB`."""
    best = most_tokens(found)
    if best is None:
        return "None of these sizes fits."
    of = f" of {size(found.limit)}" if found.limit is not None else ""
    tokens = f"{count(best.batch)} × {count(best.length)} tokens = {count(best.batch * best.length)}"
    return f"Most tokens that fit in a microbatch: {tokens}, {size(best.need)}{of}."


def heat_map(found: Grid, colours: Palette, *, chosen: tuple[int | None, int | None] = (None, None)) -> go.Figure:
    """Return the map, in the colours of the verdicts with each need in figures, and the frontier.

    A frame is drawn round the cell of `chosen`, microbatch and length of the configuration.
    """
    figure = new_figure(colours, height=_FRAME_PIXELS + _ROW_PIXELS * len(found.batches))
    divisor, unit = _unit(found)
    rows = [[found.cells.get((batch, length)) for length in found.lengths] for batch in found.batches]
    figure.add_heatmap(
        z=[
            [
                None
                if cell is None
                else _TONES.index("quiet" if cell.verdict == "unknown" else VERDICTS[cell.verdict].tone)
                for cell in row
            ]
            for row in rows
        ],
        x=list(range(len(found.lengths))),
        y=list(range(len(found.batches))),
        zmin=-0.5,
        zmax=len(_TONES) - 0.5,
        colorscale=_steps([colours.backs[tone] for tone in _TONES]),
        showscale=False,
        xgap=2,
        ygap=2,
        text=[[_in_cell(cell, divisor) for cell in row] for row in rows],
        texttemplate="%{text}",
        textfont={"color": colours.ink, "size": 12},
        hovertext=[[_hover(cell) for cell in row] for row in rows],
        hoverinfo="text",
    )
    across, up = frontier(found)
    figure.add_scatter(
        x=across, y=up, mode="lines", line={"color": colours.ink, "width": 2.5, "shape": "hv"}, hoverinfo="skip"
    )
    _frame(figure, found, colours, chosen)
    figure.update_xaxes(
        title_text=f"tokens of a sequence; in the cells {unit} on each device",
        tickvals=list(range(len(found.lengths))),
        ticktext=[count(length) for length in found.lengths],
        range=[-0.5, len(found.lengths) - 0.5],
        showgrid=False,
    )
    figure.update_yaxes(
        title_text="sequences of a microbatch",
        tickvals=list(range(len(found.batches))),
        ticktext=[count(batch) for batch in found.batches],
        range=[-0.55, len(found.batches) - 0.45],
    )
    return figure


def _unit(found: Grid) -> tuple[int, str]:
    """Return the unit of the cells: that of the smallest need, a larger one where the largest had many digits in it."""
    needs = sorted(cell.need for cell in found.cells.values() if cell.need) or [1.0]
    units = [unit_of_bytes(need) for need in needs]
    return next(one for one in units if needs[-1] / one[0] < _MOST_IN_CELL)


def _integer(one: Mapping[str, Any], key: str) -> int | None:
    value = get_number(one, key)
    return int(value) if value is not None and 0 < value <= _LARGEST and value == int(value) else None


def _steps(colours: list[str]) -> list[tuple[float, str]]:
    """Return a scale of equal steps, each of one colour."""
    ends = [(number / len(colours), (number + 1) / len(colours)) for number in range(len(colours))]
    return [(end, colour) for pair, colour in zip(ends, colours, strict=True) for end in pair]


def _in_cell(cell: Cell | None, divisor: int) -> str:
    if cell is None:
        return ""
    need = None if cell.need is None else cell.need / divisor
    said = "" if need is None else f" {need:,.1f}" if need < 1000 else f" {need:,.0f}"
    return f"{VERDICTS[cell.verdict].symbol}{said}"


def _hover(cell: Cell | None) -> str:
    if cell is None:
        return "not planned"
    sizes = f"{count(cell.batch)} × {count(cell.length)} tokens"
    return f"{sizes}: {VERDICTS[cell.verdict].symbol} {cell.verdict}, {size(cell.need)}<br>{cell.method}"


def _frame(figure: go.Figure, found: Grid, colours: Palette, chosen: tuple[int | None, int | None]) -> None:
    batch, length = chosen
    if batch is not None and length is not None and is_in(found, batch, length):
        row, column = found.batches.index(batch), found.lengths.index(length)
        figure.add_shape(
            type="rect",
            x0=column - 0.46,
            x1=column + 0.46,
            y0=row - 0.44,
            y1=row + 0.44,
            line={"color": colours.tones["fair"], "width": 2, "dash": "dot"},
        )
