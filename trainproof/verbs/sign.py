"""The verb `sign`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer


def sign(
    bundle: Annotated[Path | None, typer.Argument(help="The zip.")] = None,
    key: Annotated[Path | None, typer.Option(help="Private key to sign with.")] = None,
    new_key: Annotated[Path | None, typer.Option(help="Make a private key here, and its public key beside it.")] = None,
) -> None:
    """Sign a bundle with a key of your own, beside it as .sig. Exit 1: the bundle does not hold."""
    from trainproof.terminal.signatures import signed

    sys.stdout.write(signed(bundle, key, new_key))
