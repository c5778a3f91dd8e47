"""The verb `verify`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from trainproof.verbs.options import AsJson


def verify(
    bundle: Annotated[Path, typer.Argument(help="The zip, or the folder it was unpacked into.")],
    signature: Annotated[Path | None, typer.Option(help="Its signature. Default: the zip's .sig.")] = None,
    public_key: Annotated[
        Path | None, typer.Option(help="SSH public key of the person who should have signed it.")
    ] = None,
    tsa_root: Annotated[Path | None, typer.Option(help="Root certificate of the time authority (PEM).")] = None,
    attestation: Annotated[Path | None, typer.Option(help="Attestation of a GitHub workflow.")] = None,
    trusted_root: Annotated[Path | None, typer.Option(help="Trusted root of Sigstore to check it against.")] = None,
    repository: Annotated[
        str | None, typer.Option(help="OWNER/NAME of the repository whose workflow you trust.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check a bundle with nothing but the zip: hashes, documents, cross-checks, grades. Exit 1: it does not hold."""
    from evidence.proof.verification import check_attestation, check_signature, check_timestamps
    from evidence.writing import as_json_text
    from trainproof.terminal.bundles import progress_bar, verdict_dict, verdict_on, verdict_text

    with progress_bar("Verifying") as progress:
        verdict = check_signature(verdict_on(bundle, progress), signature, public_key)
    verdict = check_timestamps(verdict, tsa_root)
    if attestation is not None:
        verdict = check_attestation(verdict, attestation, trusted_root, repository)
    sys.stdout.write(as_json_text(verdict_dict(verdict)) if as_json else verdict_text(verdict))
    raise typer.Exit(0 if verdict.ok else 1)
