"""Receipts of `trainproof replay` and `trainproof challenge`: what someone found who reproduced a run.

A receipt is bound to a run by the hash of its manifest, which lists every file, so a changed run has no receipts. This
user's own are sealed and kept outside of the runs. A receipt in a run's folder came with it: it counts if this user
made it or a trusted key signed it, and is a claim otherwise.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from evidence import layout, seal
from evidence.hashes import sha256_file, sha256_json
from evidence.proof.signatures import refuse, sign, signature_path
from evidence.writing import write_json
from schemas.formats import visible
from schemas.validate import read_document

_SEAL_PREFIX = b"trainproof receipt\n"
"""What the sealed bytes begin with, so that a seal of something else cannot be used."""

_MAX_RECEIPTS = 64
"""Receipts of one run that are read; a stranger's folder may hold any number."""


def own_receipts_folder() -> Path:
    """Return the folder of this user's own receipts."""
    return seal.user_data_folder() / layout.RECEIPTS


def run_sha256(folder: Path) -> str | None:
    """Return the hash of a run's manifest, which identifies the run, or None if it cannot be read."""
    try:
        return sha256_file(folder / layout.MANIFEST)
    except OSError:
        return None


def save_receipt(receipt: dict[str, Any]) -> Path:
    """Seal a receipt of this user, save it among this user's own and return its path.

    Raises:
        OSError: It cannot be written.
    """
    folder = own_receipts_folder() / receipt["run_sha256"]
    folder.mkdir(parents=True, exist_ok=True)
    date, time = receipt["made_at"][:23].split("T")
    path: Path = folder / f"{receipt['kind']}-{date.replace('-', '')}-{time.replace(':', '')}.json"
    write_json(path, {**receipt, "seal": seal.make_seal(_sealed_bytes(receipt))})
    os.utime(own_receipts_folder())  # Lists of runs watch this folder only.
    return path


def receipts_version() -> int:
    """Return when this user last saved a receipt, in ns since 1970, or 0 for never."""
    try:
        return own_receipts_folder().stat().st_mtime_ns
    except OSError:
        return 0


def find_receipts(folder: Path, sha256: str) -> Iterator[tuple[Path, dict[str, Any], bool]]:
    """Yield the receipts for a run: file, document, and whether this user made it.

    Args:
        folder: Folder of the run, which may hold receipts that came with it.
        sha256: Hash of its manifest.
    """
    for place in (own_receipts_folder() / sha256, folder / layout.RECEIPTS):
        for path, receipt in read_receipts(place, sha256):
            yield path, receipt, seal.verify_seal(receipt.get("seal"), _sealed_bytes(receipt))


def read_receipts(place: Path, sha256: str) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield file and document of the valid receipts in a folder that are for the run with this manifest hash."""
    try:
        paths = sorted(path for path in place.iterdir() if path.suffix == ".json" and path.is_file())
    except OSError:
        return
    for path in paths[-_MAX_RECEIPTS:]:
        document = read_document(path, "receipt")
        receipt = document.value
        if receipt is not None and not document.problems and receipt["run_sha256"] == sha256:
            yield path, receipt


def summarize_receipt(receipt: dict[str, Any]) -> str:
    """Return the summary that a receipt states, on one line and without control characters."""
    return visible(receipt["said"])


def sign_receipt(path: Path, key: Path) -> str:
    """Sign a receipt file (into a `.sig` file next to it) and return the fingerprint of the key.

    Raises:
        ProblemError: Exit code 2: the file is not a receipt; or see `sign`.
    """
    document = read_document(path, "receipt")
    if document.value is None or document.problems:
        raise refuse(path, "TP871", what="This is neither a bundle nor a receipt.")
    return sign(path.read_bytes(), key, signature_path(path))


def is_negative(receipt: dict[str, Any]) -> bool:
    """Return whether a receipt states that anything differs, in its result or in any part."""
    covered = receipt["covered"]
    verdicts = [covered.get("start", {}).get("verdict"), *(each["verdict"] for each in covered["segments"])]
    return receipt["result"] == "different" or "different" in verdicts or covered["items"]["different"] > 0


def _sealed_bytes(receipt: dict[str, Any]) -> bytes:
    return _SEAL_PREFIX + sha256_json({key: value for key, value in receipt.items() if key != "seal"}).encode()
