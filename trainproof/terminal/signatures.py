"""The verb `sign`, and the signature behind `verify`: which files are meant, and the words.

What lives here: what the user named and left out. What does not: any signature (`evidence.bundle.signature`).
"""

from __future__ import annotations

import zipfile
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from evidence.bundle.signature import check_signature, sign_bundle, sign_document
from evidence.bundle.verdict import BundleVerdict
from evidence.proof.envelope import SignedStatement, signature_of
from evidence.proof.keys import new_key, public_key, public_of
from evidence.proof.rules import BAD_KEY, refusal
from evidence.proof.trust import trusted_keys
from schemas.problems.problem import ProblemError
from schemas.problems.visible import as_lines
from schemas.problems.words import quantity
from trainproof.terminal.bundles import verdict_on


def sign_file(file: Path | None, key: Path | None, make: Path | None) -> str:
    """Make a key, sign a bundle, receipt or statement, or both in this order, and return what the terminal shows.

    Raises:
        ProblemError: Exit code 2: neither was requested, no key was named, or one cannot be used. Exit code 1: the
            bundle does not hold.
    """
    used = key or make
    if used is None:
        what = "No key was named." if file else "Neither a bundle nor a key was named."
        raise ProblemError([refusal(BAD_KEY, "", what)], exit_code=2)
    lines = []
    if make:
        lines.append(f"{make}: new private key {new_key(make).key_id}; keep it to yourself.")
        lines.append(f"{public_of(make)}: its public key; give it to those who verify.")
    if file:
        made = _sign_one(file, used)
        others = f", beside {quantity(made.others, 'other')}" if made.others else ""
        lines.append(f"{made.path}: signature of {file.name} with {made.key_id}{others}.")
    return as_lines(lines)


def with_signature(verdict: BundleVerdict, signature: Path | None, public_key_file: Path | None) -> BundleVerdict:
    """Return a verdict with what its signature is worth: one that the user named, or one beside the zip.

    Raises:
        ProblemError: Exit code 2: a signature was named, and neither a key nor anyone on the trust list; or the key
            or the trust list cannot be used.
    """
    path = signature or signature_of(verdict.path)
    if public_key_file is not None:
        key = public_key(public_key_file)
        return replace(verdict, signature=check_signature(verdict, path, {key: trusted_keys().get(key)}, asked=True))
    known = trusted_keys()
    if signature is not None and not known:
        what = "A signature proves nothing without the public key of whoever is to have made it."
        raise ProblemError([refusal(BAD_KEY, str(signature), what)], exit_code=2)
    if signature is None and not path.is_file():
        return verdict
    return replace(verdict, signature=check_signature(verdict, path, known, asked=signature is not None))


def _sign_one(file: Path, key: Path) -> SignedStatement:
    now = datetime.now(UTC)
    if file.suffix in {".json", ".jsonl"} and not zipfile.is_zipfile(file):
        return sign_document(file, key, now)
    return sign_bundle(verdict_on(file), key, now)
