"""The verb `sign`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer


def sign(
    bundle: Annotated[Path | None, typer.Argument(help="The zip, a receipt, or a statement about a run.")] = None,
    key: Annotated[Path | None, typer.Option(help="Private key to sign with.")] = None,
    new_key: Annotated[Path | None, typer.Option(help="Make a private key here, and its public key beside it.")] = None,
) -> None:
    """Sign a bundle, receipt or statement with your key, beside it as .sig; others' stay. Exit 1: it does not hold."""
    from trainproof.terminal.signatures import sign_file

    sys.stdout.write(sign_file(bundle, key, new_key))
