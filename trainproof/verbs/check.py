"""The verb `check`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from trainproof.verbs.options import AsJson


def check(
    paths: Annotated[list[Path], typer.Argument(help="Run folders, folders of runs, or single documents.")],
    as_json: AsJson = False,
    as_github: Annotated[bool, typer.Option("--github", help="Print annotations for GitHub Actions.")] = False,
    as_sarif: Annotated[bool, typer.Option("--sarif", help="Print SARIF 2.1.0.")] = False,
) -> None:
    """Check runs against their own evidence. Exit 1: something is wrong."""
    from evidence.index.index import check_paths
    from evidence.report import report_as

    report = check_paths(paths)
    form = {"json": as_json, "github": as_github, "sarif": as_sarif}
    sys.stdout.write(report_as(report, [name for name, asked in form.items() if asked]))
    raise typer.Exit(0 if report.ok else 1)
