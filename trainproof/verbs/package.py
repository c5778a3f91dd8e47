"""The verb `package`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from trainproof.verbs.options import AsJson


def package(
    runs: Annotated[list[Path] | None, typer.Argument(help="Run folders.")] = None,
    run_dir: Annotated[list[Path] | None, typer.Option(help="Run folder; the same as naming it.")] = None,
    output: Annotated[Path | None, typer.Option(help="Zip to write. Default: bundles/<run>.zip.")] = None,
    allow_partial: Annotated[
        bool, typer.Option("--allow-partial", help="Pack unfinished runs and runs with errors, labelled as such.")
    ] = False,
    with_weights: Annotated[
        bool, typer.Option("--with-weights", help="Pack checkpoints, adapters and exports too.")
    ] = False,
    with_unlisted: Annotated[
        bool, typer.Option("--with-unlisted", help="Pack files too that the run does not list.")
    ] = False,
    redact: Annotated[
        bool, typer.Option("--redact", help="Mask secrets and home folders in the packed copies of logs and texts.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Pack runs into one zip that anyone can verify. Exit code 1 if a run cannot be packed."""
    from evidence.bundle.build import build_bundle
    from evidence.writing import as_json_text
    from trainproof.terminal.bundles import build_dict, build_text, default_output, progress_bar

    folders = [*(runs or []), *(run_dir or [])]
    with progress_bar("Packing") as progress:
        report = build_bundle(
            folders,
            output or default_output(folders),
            allow_partial=allow_partial,
            with_weights=with_weights,
            with_unlisted=with_unlisted,
            redact=redact,
            progress=progress,
        )
    sys.stdout.write(as_json_text(build_dict(report)) if as_json else build_text(report))
