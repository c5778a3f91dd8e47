"""The verb `stamp`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer


def stamp(
    path: Annotated[Path, typer.Argument(help="Run folder, or a zip.")],
    authority: Annotated[str, typer.Option(help="Address of a time authority (RFC 3161), as https://HOST/PATH.")],
    certificate: Annotated[Path | None, typer.Option(help="Its root certificate (PEM), to check the answer.")] = None,
) -> None:
    """Have a time authority attest that a run or a zip exists now. It receives a hash and nothing else."""
    from trainproof.terminal.signatures import stamp as request_stamp

    sys.stdout.write(request_stamp(path, authority, certificate))
