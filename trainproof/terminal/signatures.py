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
from evidence.proof.rules import refusal
from evidence.proof.stamps.authority import StampVerdict, check, request_stamp, stamp_path
from evidence.proof.stamps.record import stamp_run, stamps_of, trusted_roots
from evidence.proof.trust import trusted_keys
from evidence.records.facts import facts_of
from evidence.records.ours import read_existing_run
from evidence.run import layout
from evidence.run.hashes import sha256_file
from evidence.run.write import not_written
from schemas.formats import as_lines, quantity
from schemas.problems import ProblemError
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
        raise ProblemError([refusal("TP855", "", what)], exit_code=2)
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
        raise ProblemError([refusal("TP855", str(signature), what)], exit_code=2)
    if signature is None and not path.is_file():
        return verdict
    return replace(verdict, signature=check_signature(verdict, path, known, asked=signature is not None))


def _sign_one(file: Path, key: Path) -> SignedStatement:
    now = datetime.now(UTC)
    if file.suffix in {".json", ".jsonl"} and not zipfile.is_zipfile(file):
        return sign_document(file, key, now)
    return sign_bundle(verdict_on(file), key, now)


def stamped_now(path: Path, authority: str, certificate: Path | None) -> str:
    """Ask for a stamp of a run's manifest or of a zip, keep it, and return what was done as the terminal shows it.

    Raises:
        ProblemError: Exit code 1: the answer does not hold under the certificate. Exit code 2: the path, address or
            certificate is not one. Exit code 4: the authority gave no stamp.
    """
    roots = trusted_roots(certificate)
    try:
        kept, worth = _of_run(path, authority, roots) if path.is_dir() else _of_file(path, authority, roots)
    except OSError as error:
        raise not_written(error, path, what="The time stamp") from None
    if certificate is not None and worth.problem:
        raise ProblemError([refusal("TP862", str(kept), worth.problem)], exit_code=1)
    under = f"root {worth.root}" if worth.root else "no root certificate of it is trusted here, so keep the stamp"
    time = f"{worth.stamp.time:%Y-%m-%d %H:%M:%S} UTC" if worth.stamp.time else "an unknown time"
    return as_lines([f"{kept}: {path.name} existed before {time}, according to {worth.stamp.by} ({under})."])


def _of_file(path: Path, authority: str, roots: dict[str, object]) -> tuple[Path, StampVerdict]:
    if not path.is_file():
        what = "This does not exist; a run folder or a zip can be stamped."
        raise ProblemError([refusal("TP861", str(path), what, next="Give its path.")], exit_code=2)
    digest = bytes.fromhex(sha256_file(path))
    answer = request_stamp(authority, digest)
    kept = stamp_path(path)
    kept.write_bytes(answer)
    return kept, check(answer, digest, authority, roots)


def _of_run(folder: Path, authority: str, roots: dict[str, object]) -> tuple[Path, StampVerdict]:
    manifest = facts_of(read_existing_run(folder)).manifest
    if manifest is None or not manifest["artifacts"]:
        what = "The run has no valid manifest that lists its files, so a stamp would be of nothing."
        raise ProblemError([refusal("TP861", str(folder), what, next="Wait until it has ended.")], exit_code=1)
    failed = stamp_run(folder, "manifest", sha256_file(folder / layout.MANIFEST), authority, datetime.now(UTC))
    if failed is not None:
        raise ProblemError([refusal("TP861", authority, failed)], exit_code=4)
    newest = stamps_of(folder, manifest)[-1]
    assert newest.answer is not None
    digest = bytes.fromhex(newest.sha256)
    return folder / layout.STAMPS, check(newest.answer, digest, authority, roots)
