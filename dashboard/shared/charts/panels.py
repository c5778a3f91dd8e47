"""Which panels, axes and CSV columns there are: the fields of a metric row, as their schema states them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from schemas.catalog import TIME, RowField, row_fields

TIME_COLUMN = "seconds"
"""The column of a series that is made of the field `time`: seconds since the first row."""

_LARGE_PIXELS, _LOW_PIXELS = 210, 96

_SCALES: Mapping[str, tuple[tuple[float, float, str], ...]] = {
    "tokens": ((1e9, 1e9, "billion tokens"), (1e6, 1e6, "million tokens"), (1e3, 1e3, "thousand tokens")),
    "seconds": ((7200, 3600, "hours"), (120, 60, "minutes")),
    "bytes": ((2**30, 2**30, "GiB"), (2**20, 2**20, "MiB")),
}
"""Larger units by unit: from which value on, how many of the unit they are, and what they are called."""


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One curve. Together the panels send less than 200 kB to a browser: 8 bytes a point, 12 when smoothed.

    Attributes:
        column: The column that it draws.
        title: What that is.
        unit: Unit of the column; empty for a bare number.
        exactly: What it is in our own rows; of those of other tools no one here knows it.
        height: Pixels.
    """

    column: str
    title: str
    unit: str
    exactly: str
    height: int

    @property
    def is_large(self) -> bool:
        """Whether it is one of the high panels."""
        return self.height == _LARGE_PIXELS


@cache
def panels() -> tuple[Panel, ...]:
    """Return the panels: the fields that are to be drawn, in the order of the schema, large ones first."""
    made = [_panel(field, field.panel) for field in row_fields() if field.panel is not None]
    return tuple(sorted(made, key=lambda panel: -panel.height))


def _panel(field: RowField, style: Mapping[str, Any]) -> Panel:
    return Panel(
        column=field.name,
        title=field.title,
        unit=field.unit,
        exactly=style.get("exactly", ""),
        height=_LARGE_PIXELS if style.get("large") else _LOW_PIXELS,
    )


@cache
def axes() -> Mapping[str, str]:
    """Return what may run along the x axis: the column and what it is called."""
    named = {field.name: field.unit.capitalize() or field.title for field in row_fields() if field.is_axis}
    return {TIME_COLUMN if name == TIME else name: title for name, title in named.items()}


@cache
def columns() -> tuple[str, ...]:
    """Return the columns of the CSV: axes, then panels."""
    return (*axes(), *(panel.column for panel in panels()))


def unit_of_axis(column: str) -> str:
    """Return the unit of an axis."""
    return next((field.unit for field in row_fields() if field.name == column), "seconds")


def scale(unit: str, arrays: Sequence[np.ndarray]) -> tuple[float, str]:
    """Return the divisor and the unit in which the largest value of these columns of one unit reads well."""
    largest = max((float(np.nanmax(array)) for array in arrays if np.isfinite(array).any()), default=0.0)
    for threshold, divisor, larger in _SCALES.get(unit, ()):
        if largest >= threshold:
            return divisor, larger
    return 1.0, unit
