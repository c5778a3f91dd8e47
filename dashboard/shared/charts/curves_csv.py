"""The values behind the curves as CSV, every row of every run: not thinned, not smoothed, in the file's own units."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dashboard.shared.charts.line import PARTS, Line
from dashboard.shared.charts.panels import columns
from dashboard.shared.tables.csv_text import csv_text


def curves_csv(lines: Sequence[Line]) -> str:
    """Return the rows of these runs, one after the other; an empty cell is a value that was not measured."""
    return csv_text(("run", "part", *columns()), _rows(lines))


def _rows(lines: Sequence[Line]) -> Iterator[tuple[object, ...]]:
    for line in lines:
        for part, series in line.parts():
            drawn = [series.columns[name].tolist() for name in columns()]
            for values in zip(*drawn, strict=True):
                yield line.name, PARTS[part], *map(_whole, values)


def _whole(value: float) -> float:
    """Return a whole number as one: bytes and steps are counted, and are read as columns of fractions here."""
    return int(value) if value.is_integer() else value
