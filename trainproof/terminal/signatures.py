"""Run the verbs `sign` and `stamp`, and describe what they did."""

from __future__ import annotations

import zipfile
from datetime import UTC, datetime
from pathlib import Path

from evidence import layout
from evidence.hashes import sha256_file
from evidence.proof.receipts import sign_receipt
from evidence.proof.signatures import create_key, refuse, signature_path
from evidence.proof.timestamps import (
    Timestamp,
    load_authority_roots,
    load_timestamps,
    request_timestamp,
    stamp_run,
    timestamp_path,
    verify_timestamp,
)
from evidence.proof.verification import sign_bundle
from evidence.run import read_existing_run
from evidence.writing import write_error
from schemas.formats import join_lines
from trainproof.terminal.bundles import verdict_on


def sign_file(file: Path | None, key: Path | None, new_key: Path | None) -> str:
    """Create a key, sign a bundle or receipt, or both in this order, and describe it.

    Raises:
        ProblemError: Exit code 2: neither was requested, or the key cannot be used. Exit code 1: the bundle does not
            hold.
    """
    used = key or new_key
    if used is None:
        raise refuse(file="", code="TP855", what="No key was named." if file else "Neither a file nor a key was named.")
    lines = []
    if new_key:
        lines.append(f"{new_key}: new private key {create_key(new_key)}. Keep it secret.")
        lines.append(f"{new_key}.pub: its public key. Give it to those who verify.")
    if file:
        is_json = file.suffix == ".json" and not zipfile.is_zipfile(file)
        key_id = sign_receipt(file, used) if is_json else sign_bundle(verdict_on(file), used)
        lines.append(f"{signature_path(file)}: signed {file.name} with {key_id}.")
    return join_lines(lines)


def stamp(path: Path, authority: str, certificate: Path | None) -> str:
    """Request and keep a time stamp of a run's manifest or of a zip, and describe it.

    Raises:
        ProblemError: Exit code 1: the stamp is not valid under the certificate. Exit code 2: path, address or
            certificate cannot be used. Exit code 4: the authority gave no stamp.
    """
    roots = load_authority_roots(certificate)
    try:
        kept, timestamp = _stamp_run(path, authority) if path.is_dir() else _stamp_file(path, authority)
    except OSError as error:
        raise write_error(error, path, what="The time stamp") from None
    sentence, is_refuted = verify_timestamp(timestamp, roots, requested=certificate is not None)
    if is_refuted:
        raise refuse(kept, "TP862", what=sentence, exit_code=1)
    return join_lines([f"{kept}: {sentence}"])


def _stamp_file(path: Path, authority: str) -> tuple[Path, Timestamp]:
    if not path.is_file():
        raise refuse(path, "TP861", what="This does not exist.", next="Pass a run folder or a zip.")
    response = request_timestamp(authority, path.read_bytes())
    timestamp_path(path).write_bytes(response)
    stamp = Timestamp(subject="zip", sha256=sha256_file(path), authority=authority, response=response)
    return timestamp_path(path), stamp


def _stamp_run(folder: Path, authority: str) -> tuple[Path, Timestamp]:
    manifest = read_existing_run(folder).manifest
    if manifest is None or not manifest["artifacts"]:
        what = "The run has no valid manifest that lists its files, so a time stamp would prove nothing."
        raise refuse(folder, "TP861", what=what, exit_code=1, next="Wait until the run has ended.")
    message = (folder / layout.MANIFEST).read_bytes()
    failure = stamp_run(folder, "manifest", message, authority, datetime.now(UTC))
    if failure is not None:
        raise refuse(authority, "TP861", what=failure, exit_code=4)
    return folder / layout.STAMPS, load_timestamps(folder, manifest)[-1]
