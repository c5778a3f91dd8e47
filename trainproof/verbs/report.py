"""The verb `report`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer


def report(
    runs: Annotated[list[Path], typer.Argument(help="Run folders.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="HTML file to write.")] = Path("report.html"),
) -> None:
    """Write one page about runs, to be sent to another person: figures, grades, findings, and how the runs compare."""
    from evidence.bundle.share import write_report
    from schemas.formats import size

    write_report(runs, output)
    sys.stdout.write(f"Written: {output}, {size(output.stat().st_size)}.\n")
