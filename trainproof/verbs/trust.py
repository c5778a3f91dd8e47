"""The verb `trust` and what follows it: add, list, remove."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from trainproof.verbs.options import AsJson

trust = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Whom you trust: people by keys, authorities by root certificates.",
)


@trust.command()
def add(
    file: Annotated[Path, typer.Argument(metavar="KEY", help="Public key or root certificate (PEM), or trusted root.")],
    name: Annotated[str, typer.Option(help="Whose it is, in your words.")],
) -> None:
    """Trust a person's key, a time authority or an instance of Sigstore from now on."""
    from datetime import UTC, datetime

    from evidence.proof import trust as room

    entry = room.trust(file, name, datetime.now(UTC))
    sys.stdout.write(f"{entry.name}: {entry.kind} {entry.id} is trusted.\n")


@trust.command("list")
def list_(as_json: AsJson = False) -> None:
    """List whom you trust, and since when."""
    from evidence.proof.trust import trust_path, trusted_entries
    from evidence.run.write import as_json_text
    from schemas.formats import as_lines

    entries = trusted_entries()
    if as_json:
        sys.stdout.write(as_json_text([asdict(entry) for entry in entries]))
    else:
        lines = [f"{each.name}: {each.kind} {each.id}, since {each.added_at[:10]}" for each in entries]
        sys.stdout.write(as_lines(lines or [f"Nobody is trusted; the list is {trust_path()}."]))


@trust.command()
def remove(name: Annotated[str, typer.Argument(help="Name or id of the entry.")]) -> None:
    """Stop trusting a person."""
    from evidence.proof.trust import distrust
    from schemas.formats import as_lines

    sys.stdout.write(as_lines([f"{each.name}: {each.kind} {each.id} is trusted no longer." for each in distrust(name)]))
