"""Print results: aligned tables, JSON and progress."""

from __future__ import annotations

import json
import sys
import unicodedata
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from evidence.writing import as_json_text
from schemas.formats import join_lines, visible

if TYPE_CHECKING:
    from evidence.bundle.contents import Progress


def print_json(value: Any) -> None:
    """Print a JSON document."""
    sys.stdout.write(as_json_text(value))


def print_event(event: dict[str, Any]) -> None:
    """Print an event on standard error as one line of JSON."""
    sys.stderr.write(json.dumps(event, ensure_ascii=False) + "\n")
    sys.stderr.flush()


def align(rows: Sequence[Sequence[str]], *, indent: int = 2, right: Collection[str] = ()) -> str:
    """Align the columns of rows, two spaces apart.

    Args:
        rows: The header, then the rows.
        indent: Spaces before each line.
        right: Headers of columns that are aligned to the right.
    """
    widths = [max(map(_width, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = zip(rows[0], row, widths, strict=True)
        padded = ((cell, " " * (width - _width(cell)), head in right) for head, cell, width in cells)
        line = "  ".join(space + cell if is_right else cell + space for cell, space, is_right in padded)
        lines.append(f"{'':{indent}}{line.rstrip()}")
    return join_lines(lines)


def _width(text: str) -> int:
    """Return the columns that a text takes on a terminal; East Asian wide characters take two."""
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)


def print_table(rows: Sequence[Sequence[str]], *, right: Collection[str] = ()) -> None:
    """Print a header and rows, fitted to the width of the terminal."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for head in rows[0]:
        table.add_column(head, justify="right" if head in right else "left")
    for row in rows[1:]:
        table.add_row(*(Text(visible(cell)) for cell in row))
    Console().print(table)


@contextmanager
def progress_bar(description: str) -> Iterator[Progress | None]:
    """Draw a progress bar of bytes on standard error, or yield None if it is not a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(binary_units=True))
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(description, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
