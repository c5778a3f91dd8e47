"""The verb `grade`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from evidence.writing import as_json_text
from trainproof.verbs.options import AsJson


def grade(
    paths: Annotated[list[Path], typer.Argument(help="Run folders, or folders of runs.")], as_json: AsJson = False
) -> None:
    """Say what each run is worth, and why."""
    from evidence.index.index import check_paths
    from evidence.report import grades_json, grades_text

    reports = check_paths(paths).runs
    sys.stdout.write(as_json_text(grades_json(reports)) if as_json else grades_text(reports))
