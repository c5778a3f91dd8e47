"""Other tools and the browser: `import`, `dashboard`."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from evidence.extras import need
from evidence.grade import check_run
from evidence.imports.importing import import_run
from evidence.run import read_run
from evidence.writing import as_json_text
from schemas.formats import join_lines, quantity
from schemas.render import render_json, render_text
from trainproof.cli.options import RUNS, AsJson, Root


def import_(
    folder: Annotated[Path, typer.Argument(help="Folder of another tool: logs, metrics, predictions.")],
    name: Annotated[str, typer.Option(help="Beginning of the new run's name.")],
    root: Root = RUNS,
    as_json: AsJson = False,
) -> None:
    """Import a folder of another tool as a run. The original files are kept with their hashes."""
    imported = import_run(folder, name=name, root=root, now=datetime.now(UTC))
    report, view = check_run(read_run(imported.path)), imported.view
    findings, originals = (*report.findings, *imported.notes), imported.document["originals"]
    nouns = {"facts": "fact", "metrics": "metric row", "scores": "score", "predictions": "prediction"}
    counts = {name: len(getattr(view, name)) for name in nouns}
    if as_json:
        document = {
            "path": str(imported.path),
            "run_id": imported.document["run_id"],
            **report.grade.document(),
            "tools": {tool: list(files) for tool, files in view.tools.items()},
            "originals": len(originals),
            **counts,
            "findings": render_json(findings),
        }
        sys.stdout.write(as_json_text(document))
        return
    copied = quantity(sum(original["kept"] for original in originals), "file")
    contents = ", ".join(quantity(counts[name], noun) for name, noun in nouns.items())
    lines = [f"Imported as {imported.path}: {copied} copied to original/, {contents}.", f"grade: {report.grade.name}"]
    sys.stdout.write(join_lines([*lines, *(f"  {reason}" for reason in report.grade.reasons)]) + render_text(findings))


def dashboard(
    root: Annotated[Path, typer.Option(help="Folder of runs; it need not exist yet.")] = RUNS,
    port: Annotated[int | None, typer.Option(help="Port. Default: the first free one from 8501.")] = None,
    address: Annotated[
        str, typer.Option(help="Address to listen on; any other than this machine requires a login.")
    ] = "127.0.0.1",
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Do not open a browser.")] = False,
) -> None:
    """Open the dashboard in a browser."""
    need("dashboard", "dashboard")
    from dashboard.serve import serve

    serve(root, port=port, address=address, open_browser=not no_browser)
