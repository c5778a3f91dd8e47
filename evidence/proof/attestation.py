"""Attestations of GitHub workflows: which workflow, of which repository, at which commit, made a file.

A file of `gh attestation download` holds Sigstore bundles, one a line: a signed statement about a file, the short-lived
certificate of the workflow's key, and the entry of a public log. The certificate states who ran
(github.com/sigstore/fulcio, docs/oid-info.md); the package `sigstore` verifies signature, certificate, log entry and
their times against a trusted root, without a network. Without such a root the words are read and nothing is believed.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from evidence.proof.envelope import parsed_object
from evidence.proof.keys import limited_content, needed_module
from evidence.proof.rules import refusal
from evidence.proof.trust import json_parts, roots_of, trust_path, trusted_entries
from schemas.formats import visible
from schemas.problems import ProblemError

ISSUER = "https://token.actions.githubusercontent.com"
"""Who vouched for the workflow's identity: GitHub's own service, and no other."""
HOST = "https://github.com/"
MOST_BUNDLES = 32
"""Bundles of one file that are tried."""

_FULCIO = "1.3.6.1.4.1.57264.1."
_FIELDS = {"issuer": 8, "runner": 11, "repository": 12, "commit": 13, "workflow": 18, "invocation": 21}


@dataclass(frozen=True, kw_only=True)
class Attestation:
    """What one bundle states, and whether it holds.

    Attributes:
        repository: `OWNER/NAME` of the repository whose workflow ran; so for the workflow's file, and the commit.
        runner: `github-hosted`, or `self-hosted`, where the owner of the machine could have done anything.
        invocation: Address of the run of the workflow.
        digests: SHA-256 of the files that it is about.
        made_at: From when on its certificate was valid; for ten minutes.
        root: Name of the trusted root under which it holds. None: it was not verified, or does not hold.
        problem: Why it does not hold, as a sentence.
    """

    repository: str
    workflow: str
    commit: str
    runner: str
    invocation: str
    digests: frozenset[str]
    made_at: datetime
    root: str | None
    problem: str | None


def attestations_in(path: Path, roots: Mapping[str, Any]) -> list[Attestation]:
    """Return the attestations in a file, each verified against the trusted roots as far as there are any.

    Args:
        path: One Sigstore bundle in JSON, or one a line.
        roots: Trusted roots of Sigstore by the names that the reader knows them by.

    Raises:
        ProblemError: Exit code 1: a bundle in it is not an attestation of a workflow. Exit code 2: the file cannot be
            read, or `cryptography` or `sigstore` is needed and not installed.
    """
    try:
        content = limited_content(path)
    except OSError as error:
        what = f"The attestation cannot be read: {error.strerror or error}."
        raise ProblemError([refusal("TP863", str(path), what)], exit_code=2) from None
    return [_attestation(part, path, roots) for part in json_parts(content)[:MOST_BUNDLES]]


def attestation_roots(named: Path | None) -> dict[str, Any]:
    """Return the trusted roots of a reader: those in the file that was named, else those on the trust list.

    Raises:
        ProblemError: Exit code 2: the file or the list cannot be used, or `sigstore` is needed and not installed.
    """
    if named is not None:
        return _number_of(named.name, roots_of(_text(named), str(named)))
    found: dict[str, Any] = {}
    for each in trusted_entries("attestation root"):
        found |= _number_of(each.name, roots_of(each.content.encode(), str(trust_path())))
    return found


def _number_of(name: str, roots: Sequence[Any]) -> dict[str, Any]:
    return {name if index == 0 else f"{name} ({index + 1})": root for index, root in enumerate(roots)}


def _text(path: Path) -> bytes:
    try:
        return limited_content(path)
    except OSError as error:
        what = f"The trusted root cannot be read: {error.strerror or error}."
        raise ProblemError([refusal("TP863", str(path), what)], exit_code=2) from None


def _attestation(part: bytes, path: Path, roots: Mapping[str, Any]) -> Attestation:
    bundle = parsed_object(part)
    certificate = _certificate(bundle)
    statement = _statement(bundle)
    if certificate is None or not statement:
        what = "This is not a Sigstore bundle with a certificate and a signed statement."
        raise ProblemError([refusal("TP863", str(path), what)], exit_code=1)
    said = _identity(certificate)
    if said["issuer"] != ISSUER or not said["repository"].startswith(HOST):
        issuer = said["issuer"] or "nobody"
        what = f"{issuer} vouched for whoever signed it, and not GitHub for a workflow."
        raise ProblemError([refusal("TP863", str(path), what)], exit_code=1)
    root, problem = _verify_part(part, roots)
    repository = said["repository"].removeprefix(HOST)
    return Attestation(
        repository=repository,
        workflow=said["workflow"].removeprefix(f"{said['repository']}/").partition("@")[0],
        commit=said["commit"],
        runner=said["runner"],
        invocation=said["invocation"],
        digests=_digests(statement),
        made_at=certificate.not_valid_before_utc,
        root=root,
        problem=problem,
    )


def _verify_part(part: bytes, roots: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """Return under which root a bundle holds, or why it holds under none; neither where there are no roots."""
    if not roots:
        return None, None
    models = needed_module("sigstore.models", "Attestations", extra="witness")
    verify = needed_module("sigstore.verify", "Attestations", extra="witness")
    policy = needed_module("sigstore.verify.policy", "Attestations", extra="witness")
    errors = needed_module("sigstore.errors", "Attestations", extra="witness")
    why = ""
    for name, root in roots.items():
        try:
            bundle = models.Bundle.from_json(part)
            verify.Verifier(trusted_root=root).verify_dsse(bundle, policy.OIDCIssuerV2(ISSUER))
        except (errors.Error, ValueError) as error:
            why = why or f"{visible(str(error)).rstrip('.')} (root {name})."
        else:
            return name, None
    return None, f"It was verified and does not hold: {why}"


def _certificate(bundle: Mapping[str, Any]) -> Any:
    """Return the certificate of a bundle of version 0.3, or of an older one, which has a chain; None without one."""
    x509 = needed_module("cryptography.x509", "Attestations", extra="witness")
    material = bundle.get("verificationMaterial")
    holder = material.get("certificate") if isinstance(material, dict) else None
    if holder is None and isinstance(material, dict):
        chain = material.get("x509CertificateChain")
        certificates = chain.get("certificates") if isinstance(chain, dict) else None
        holder = certificates[0] if isinstance(certificates, list) and certificates else None
    raw = _decode(holder.get("rawBytes")) if isinstance(holder, dict) else None
    try:
        return None if raw is None else x509.load_der_x509_certificate(raw)
    except ValueError:
        return None


def _identity(certificate: Any) -> dict[str, str]:
    """Return what Fulcio's extensions of a certificate state; an empty text for what they do not state."""
    oids = {each.oid.dotted_string: each.value for each in certificate.extensions}
    return {name: _utf8(oids.get(f"{_FULCIO}{number}")) for name, number in _FIELDS.items()}


def _utf8(extension: Any) -> str:
    """Return the text of an extension: a UTF8String in DER, shorter than 65,536 bytes."""
    raw: bytes = getattr(extension, "value", b"")
    if len(raw) < 2 or raw[0] != 0x0C:
        return ""
    head = 2 if raw[1] < 0x80 else 2 + (raw[1] & 0x7F)
    length = raw[1] if raw[1] < 0x80 else int.from_bytes(raw[2:head], "big")
    return visible(raw[head:].decode("utf-8", "replace")) if len(raw) == head + length else ""


def _statement(bundle: Mapping[str, Any]) -> dict[str, Any]:
    envelope = bundle.get("dsseEnvelope")
    payload = _decode(envelope.get("payload")) if isinstance(envelope, dict) else None
    return parsed_object(payload) if payload else {}


def _digests(statement: Mapping[str, Any]) -> frozenset[str]:
    subjects = statement.get("subject")
    digests = [each.get("digest") for each in subjects if isinstance(each, dict)] if isinstance(subjects, list) else []
    found = [each.get("sha256") for each in digests if isinstance(each, dict)]
    return frozenset(each for each in found if isinstance(each, str))


def _decode(text: Any) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True) if isinstance(text, str) else None
    except (binascii.Error, ValueError):
        return None
