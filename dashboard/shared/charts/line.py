"""A run to draw: its rows and those of its parents and evaluations, and what happened at which place of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from dashboard.shared.charts.panels import columns
from dashboard.shared.reading.series import Series
from dashboard.shared.words.text import csv_text

Axis = str
"""The column that runs along the x axis, one of `panels.axes`."""
Part = Literal["earlier", "own", "evaluation"]

PARTS: Mapping[Part, str] = {"earlier": "before it was resumed", "own": "", "evaluation": "at evaluations"}
"""What is shown of a part of a line beside its name."""


DASHES: tuple[tuple[int, ...], ...] = ((), (11, 4), (11, 3, 3, 3))
"""Strokes of the runs after each other, once all colours are taken: pixels drawn and left out in turn; none: solid."""


DOUBTFUL: tuple[int, ...] = (3, 4)
"""Stroke of a run that contradicts itself."""


@dataclass(frozen=True, kw_only=True)
class Mark:
    """Something that happened at a place of a run: where on each axis, and what; a score is from 0 to 1."""

    at: Mapping[Axis, float]
    text: str
    score: float | None = None


@dataclass(frozen=True, kw_only=True)
class RunLine:
    """A run to draw: its name, series, colour and stroke.

    Attributes:
        dashes: Pixels drawn and left out in turn, one of `DASHES`.
        earlier: What its parents did before it.
        evaluation: Losses of evaluations on the way.
        resumed: Where it was resumed.
        scores: Where it was scored.
        is_doubtful: Whether it contradicts itself: drawn grey and dashed, and in no mean.
        kin: What runs have in common that are the same but for their seed; empty if unknown.
        is_foreign: Whether another tool wrote its rows, so that no one here knows of what its loss is a mean.
    """

    name: str
    series: Series
    colour: str
    dashes: tuple[int, ...] = ()
    earlier: Series | None = None
    evaluation: Series | None = None
    resumed: tuple[Mark, ...] = ()
    scores: tuple[Mark, ...] = ()
    is_doubtful: bool = False
    kin: str = ""
    is_foreign: bool = False

    @property
    def rows(self) -> int:
        """Rows of all parts."""
        return sum(series.rows for _, series in self.parts())

    def parts(self) -> Iterator[tuple[Part, Series]]:
        """Yield what there is to draw: what came before first, so that the run itself lies on top."""
        if self.earlier is not None:
            yield "earlier", self.earlier
        yield "own", self.series
        if self.evaluation is not None:
            yield "evaluation", self.evaluation

    def value_before(self, column: str, step: float) -> float:
        """Return the last value of a column at or before a step, or NaN if it is missing."""
        for series in (self.series, self.earlier):
            if series is not None and series.rows:
                row = int(np.searchsorted(series.columns["step"], step, side="right")) - 1
                if row >= 0:
                    return float(series.columns[column][row])
        return float("nan")


def curves_csv(lines: Sequence[RunLine]) -> str:
    """Return the rows of these runs, one after the other; an empty cell is a value that was not measured."""
    return csv_text(("run", "part", *columns()), _rows(lines))


def _rows(lines: Sequence[RunLine]) -> Iterator[tuple[object, ...]]:
    for line in lines:
        for part, series in line.parts():
            drawn = [series.columns[name].tolist() for name in columns()]
            for values in zip(*drawn, strict=True):
                yield line.name, PARTS[part], *map(_integer, values)


def _integer(value: float) -> float:
    """Return a whole number as one: bytes and steps are counted, and are read as columns of fractions here."""
    return int(value) if value.is_integer() else value
