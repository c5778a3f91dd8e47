"""The verb `import`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from evidence.writing import as_json_text
from trainproof.verbs.options import RUNS, AsJson


def import_(
    folder: Annotated[Path, typer.Argument(help="Folder that another tool wrote: logs, metrics, answers.")],
    name: Annotated[str, typer.Option(help="Beginning of the new run's name.")],
    root: Annotated[Path, typer.Option(help="Folder in which the new run folder is made.")] = RUNS,
    as_json: AsJson = False,
) -> None:
    """Make a run folder from another tool's folder: the original files with hashes, and what they state."""
    from datetime import UTC, datetime

    from evidence.imports.importing import import_run
    from trainproof.terminal.imports import import_json, import_text

    imported = import_run(folder, name=name, root=root, now=datetime.now(UTC))
    sys.stdout.write(as_json_text(import_json(imported)) if as_json else import_text(imported))
