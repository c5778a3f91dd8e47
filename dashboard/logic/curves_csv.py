"""The values behind the curves as CSV, every row of every run: not thinned, not smoothed, in the file's own units."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Sequence

from dashboard.logic.curves import PANELS
from dashboard.logic.line import PARTS, Line
from dashboard.logic.text import csv_cell

COLUMNS = ("step", "tokens_seen", "seconds", *(panel.column for panel in PANELS))
"""Columns after the name of the run; `seconds` is the time since its first row."""


def curves_csv(lines: Sequence[Line]) -> str:
    """Return the rows of these runs, one after the other; an empty cell is a value that was not measured."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("run", "part", *COLUMNS))
    writer.writerows(_rows(lines))
    return out.getvalue()


def _rows(lines: Sequence[Line]) -> Iterator[tuple[object, ...]]:
    for line in lines:
        for part, series in line.parts():
            columns = [series.columns[name] for name in COLUMNS]
            for values in zip(*columns, strict=True):
                # A number written with a minus is no formula, so only the name is made harmless.
                shown = ("" if math.isnan(value) else f"{value:.9g}" for value in values)
                yield csv_cell(line.name), PARTS[part], *shown
