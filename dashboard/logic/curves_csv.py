"""The values behind the curves as CSV, every row of every run: not thinned, not smoothed, in the file's own units."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from dashboard.logic.curves import PANELS, Line
from dashboard.logic.text import csv_cell

COLUMNS = ("step", "tokens_seen", "seconds", *(panel.column for panel in PANELS))
"""Columns after the name of the run; `seconds` is the time since its first row."""


def curves_csv(lines: Sequence[Line]) -> str:
    """Return the rows of these runs, one after the other; an empty cell is a value that was not measured."""
    frames = []
    for line in lines:
        for part in (line.earlier, line.series):
            if part is not None:
                frame = pd.DataFrame({name: part.columns[name] for name in COLUMNS})
                frame.insert(0, "run", str(csv_cell(line.name)))
                frame.insert(1, "part", "before it was resumed" if part is line.earlier else "")
                frames.append(frame)
    whole = pd.concat(frames) if frames else pd.DataFrame(columns=["run", "part", *COLUMNS])
    return str(whole.to_csv(index=False, lineterminator="\n", float_format="%.9g"))
