"""The verb `dashboard`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from evidence.extras import need
from trainproof.verbs.options import RUNS


def dashboard(
    root: Annotated[Path, typer.Option(help="Folder of runs; it need not exist yet.")] = RUNS,
    port: Annotated[int | None, typer.Option(help="Port. Default: the first free one from 8501 on.")] = None,
    address: Annotated[
        str, typer.Option(help="Address to listen on; any other than this machine needs a login.")
    ] = "127.0.0.1",
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Do not open a browser.")] = False,
) -> None:
    """Show the runs in a browser: look, compare, launch, package."""
    need("dashboard", "dashboard")
    from dashboard.serve import serve

    serve(root, port=port, address=address, open_browser=not no_browser)
