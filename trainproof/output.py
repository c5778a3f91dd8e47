"""Print events, aligned tables and progress."""

from __future__ import annotations

import io
import json
import shutil
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from schemas.formats import visible

if TYPE_CHECKING:
    from evidence.bundle.contents import Progress

UNLIMITED = 100_000
"""Width of a table that is not for a terminal."""


def print_event(event: Mapping[str, Any], *, err: bool = False) -> None:
    """Print an event as one line of JSON, on standard error if `err`."""
    typer.echo(json.dumps(event, ensure_ascii=False), err=err)


def align(rows: Sequence[Sequence[str]], *, indent: int = 2, right: Collection[int] = ()) -> str:
    """Align the columns of rows with two spaces between them, and wrap cells to the width of a terminal.

    Args:
        rows: The rows, with a header or without.
        indent: Spaces before each line.
        right: Numbers of the columns that are aligned to the right.
    """
    table = Table(box=None, show_header=False, pad_edge=False)
    for number in range(len(rows[0])):
        table.add_column(justify="right" if number in right else "left")
    for row in rows:
        table.add_row(*(Text(visible(cell)) for cell in row))
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else UNLIMITED
    output = io.StringIO()
    Console(file=output, width=width - indent, color_system=None).print(table)
    return "".join(f"{'':{indent}}{line.rstrip()}\n" for line in output.getvalue().splitlines())


@contextmanager
def progress_bar(description: str) -> Iterator[Progress | None]:
    """Draw a progress bar of bytes on standard error, or yield None if it is not a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, DownloadColumn, TextColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(binary_units=True))
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(description, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
