"""The verb `report`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer


def report(
    runs: Annotated[list[Path], typer.Argument(help="Run folders or bundles.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="HTML file to write.")] = Path("report.html"),
) -> None:
    """Write runs as one HTML page to send: figures, grades, findings, and how they compare."""
    from evidence.bundle.page import write_report
    from schemas.formats import size

    write_report(runs, output)
    sys.stdout.write(f"Written: {output}, {size(output.stat().st_size)}.\n")
