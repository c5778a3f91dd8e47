"""Attestations of GitHub workflows: that a workflow of a repository, at a commit, made a file on GitHub's machine.

A file of `gh attestation download` holds Sigstore bundles, one a line. The package `sigstore` verifies signature,
certificate, log entry and their times offline, against a trusted root, and compares the workflow's identity, which
Fulcio wrote into the certificate (github.com/sigstore/fulcio, docs/oid-info.md).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from evidence.extras import need
from evidence.proof.signatures import read_or_refuse
from evidence.proof.trust import load_sigstore_roots, root_texts, split_json
from schemas.formats import visible
from schemas.problems import Problem, problem_of

if TYPE_CHECKING:
    from cryptography.x509 import Certificate
    from sigstore.models import TrustedRoot

_ISSUER = "https://token.actions.githubusercontent.com"  # GitHub's identity service for workflows
_MAX_ATTESTATIONS = 32  # read from a file; a hostile one may contain any number
_RUN_INVOCATION_OID = "1.3.6.1.4.1.57264.1.21"


@dataclass(frozen=True, kw_only=True)
class Attestation:
    """A verified attestation, with the SHA-256 of the attested files and the address of the workflow run."""

    commit: str
    digests: frozenset[str]
    made_at: str
    invocation: str | None


def verify_attestations(
    path: Path, roots: Mapping[str, TrustedRoot], repository: str, commits: Collection[str]
) -> list[Attestation] | Problem:
    """Verify the Sigstore bundles in a file; return the valid ones, or the first problem if none is valid.

    The workflow must have run in `repository` (`OWNER/NAME`) at one of the commits.
    """
    need("verify --attestation", "witness")
    from sigstore.errors import Error
    from sigstore.models import Bundle
    from sigstore.verify import Verifier, policy

    parts = split_json(read_or_refuse(path, "TP863", "The attestation"))[:_MAX_ATTESTATIONS]
    found, failures = [], []
    for part, (name, root), commit in product(parts, roots.items(), commits):
        identity = policy.AllOf(
            [
                policy.OIDCIssuerV2(_ISSUER),
                policy.OIDCSourceRepositoryURI(f"https://github.com/{repository}"),
                policy.OIDCSourceRepositoryDigest(commit),
                policy.OIDCRunnerEnvironment("github-hosted"),
            ]
        )
        try:
            bundle = Bundle.from_json(part)
            _, payload = Verifier(trusted_root=root).verify_dsse(bundle, identity)
        except (Error, ValueError, RecursionError) as error:
            failures.append(f"{visible(str(error)).rstrip('.')} (root {name}).")
            continue
        certificate = bundle.signing_certificate
        issued_at = certificate.not_valid_before_utc.isoformat(timespec="seconds")
        address = _invocation(certificate)
        found.append(Attestation(commit=commit, digests=_digests(payload), made_at=issued_at, invocation=address))
    if not found:
        what = failures[0] if failures else "No run of the bundle states a commit that could be compared."
        return problem_of("TP863", file=visible(str(path)), what=f"The attestation is not valid: {what}")
    return found


def load_attestation_roots(named: Path | None = None) -> dict[str, TrustedRoot]:
    """Load the Sigstore roots in a file, or those on the trust list."""
    return {
        name if number == 1 else f"{name} ({number})": root
        for name, text, file in root_texts("attestation root", named)
        for number, root in enumerate(load_sigstore_roots(text, file), start=1)
    }


def _digests(payload: bytes) -> frozenset[str]:
    """Return the SHA-256 digests of the subjects of an in-toto statement; empty if it is not one."""
    try:
        subjects = json.loads(payload)["subject"]
        return frozenset(subject["digest"]["sha256"] for subject in subjects if "sha256" in subject["digest"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return frozenset()


def _invocation(certificate: Certificate) -> str | None:
    """Return the address of the workflow run that a certificate names."""
    from cryptography.hazmat import asn1
    from cryptography.x509 import ExtensionNotFound, ObjectIdentifier, UnrecognizedExtension

    try:
        extension = certificate.extensions.get_extension_for_oid(ObjectIdentifier(_RUN_INVOCATION_OID)).value
    except ExtensionNotFound:
        return None
    return visible(asn1.decode_der(str, extension.value)) if isinstance(extension, UnrecognizedExtension) else None
