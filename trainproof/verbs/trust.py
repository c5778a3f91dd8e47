"""The verb `trust` and what follows it: add, list, remove."""

from __future__ import annotations

import sys
from dataclasses import asdict
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
    source: Annotated[
        str,
        typer.Argument(
            metavar="KEY", help="SSH public key, root certificate or Sigstore root: a file, URL or github:USER."
        ),
    ],
    name: Annotated[str | None, typer.Option(help="Your name for it. Default: the GitHub user.")] = None,
) -> None:
    """Trust a person's SSH keys, a time authority or a Sigstore instance."""
    from datetime import UTC, datetime

    from evidence.proof.trust import add_trusted

    for entry in add_trusted(source, name, datetime.now(UTC)):
        sys.stdout.write(f"{entry.name}: {entry.kind} {entry.id} is trusted.\n")


@trust.command("list")
def list_(as_json: AsJson = False) -> None:
    """List whom you trust, and since when."""
    from evidence.proof.trust import trust_path, trusted_entries
    from evidence.writing import as_json_text
    from schemas.formats import join_lines

    entries = trusted_entries()
    if as_json:
        sys.stdout.write(as_json_text([asdict(entry) for entry in entries]))
    else:
        lines = [f"{each.name}: {each.kind} {each.id}, since {each.added_at[:10]}" for each in entries]
        sys.stdout.write(join_lines(lines or [f"Nobody is trusted; the list is {trust_path()}."]))


@trust.command()
def remove(name: Annotated[str, typer.Argument(help="Name or id of the entry.")]) -> None:
    """Stop trusting a person, time authority or Sigstore instance."""
    from evidence.proof.trust import remove_trusted
    from schemas.formats import join_lines

    sys.stdout.write(
        join_lines([f"{each.name}: {each.kind} {each.id} is no longer trusted." for each in remove_trusted(name)])
    )
