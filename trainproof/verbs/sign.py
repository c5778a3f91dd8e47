"""The verb `sign`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer


def sign(
    bundle: Annotated[Path | None, typer.Argument(help="Bundle (zip) or receipt (JSON).")] = None,
    key: Annotated[Path | None, typer.Option(help="Private SSH key, for example ~/.ssh/id_ed25519.")] = None,
    new_key: Annotated[
        Path | None, typer.Option(help="Create a private key here, and the public key next to it.")
    ] = None,
) -> None:
    """Sign a bundle or receipt with your SSH key, next to it as .sig. Exit 1: the bundle does not hold."""
    from trainproof.terminal.signatures import sign_file

    sys.stdout.write(sign_file(bundle, key, new_key))
