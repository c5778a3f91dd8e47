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
    public_key: Annotated[Path | None, typer.Option(help="Public key of whoever is to have signed it.")] = None,
    tsa_root: Annotated[Path | None, typer.Option(help="Root certificate of the time authority (PEM).")] = None,
    attestation: Annotated[Path | None, typer.Option(help="Attestation of a GitHub workflow about it.")] = None,
    trusted_root: Annotated[Path | None, typer.Option(help="Trusted root of Sigstore to check it against.")] = None,
    repository: Annotated[str | None, typer.Option(help="OWNER/NAME that you trust and the workflow is of.")] = None,
    as_json: AsJson = False,
) -> None:
    """Check a bundle with nothing but the zip: hashes, documents, cross-checks, grades. Exit 1: it does not hold."""
    from evidence.bundle.attested import with_attestation, with_stamps
    from evidence.writing import as_json_text
    from trainproof.terminal.bundles import progress_bar, verdict_dict, verdict_on, verdict_text
    from trainproof.terminal.signatures import with_signature

    with progress_bar("Verifying") as progress:
        verdict = with_signature(verdict_on(bundle, progress), signature, public_key)
    verdict = with_stamps(verdict, tsa_root)
    if attestation is not None:
        verdict = with_attestation(verdict, attestation, trusted_root, repository)
    sys.stdout.write(as_json_text(verdict_dict(verdict)) if as_json else verdict_text(verdict))
    raise typer.Exit(0 if verdict.ok else 1)
