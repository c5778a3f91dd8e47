"""CSV for a spreadsheet: no cell of it is a formula, and what is not stated is empty."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

from dashboard.shared.words.text import csv_cell


def csv_text(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table as CSV, numbers in full; None and NaN give an empty cell."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([csv_cell(cell) for cell in head])
    writer.writerows([_cell(value) for value in row] for row in rows)
    return out.getvalue()


def _cell(value: object) -> object:
    # Of all values only NaN is not equal to itself.
    return "" if value is None or value != value else csv_cell(value)
