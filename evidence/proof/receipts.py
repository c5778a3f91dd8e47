"""Receipts: what a person found who repeated a run. This user's own are kept apart from the runs and sealed.

A receipt is bound to a run by the hash of its manifest, which lists every file of the run: a changed run does not have
any. One that lies in a run's folder came with it. It counts if this user made it, or if a trusted key signed it;
otherwise it is a claim.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from evidence.run import layout, seal
from evidence.run.hashes import sha256_file, sha256_json
from evidence.run.write import write_json
from schemas.formats import visible
from schemas.validate import read_document

_DOMAIN = b"trainproof receipt\n"
"""What a seal of a receipt is over begins with, so that no seal of anything else fits."""

_MOST = 64
"""Receipts of one run that are read; a stranger's folder may hold any number."""


def own_receipts() -> Path:
    """Return the folder in which this user's own receipts are kept."""
    return seal.user_folder() / layout.RECEIPTS


def run_sha256(folder: Path) -> str | None:
    """Return the hash that stands for a run: that of its manifest. None: it is missing or unreadable."""
    try:
        return sha256_file(folder / layout.MANIFEST)
    except OSError:
        return None


def keep_receipt(receipt: dict[str, Any]) -> Path:
    """Seal a receipt of this user and keep it among this user's own; return the file.

    Raises:
        OSError: It cannot be written.
    """
    folder = own_receipts() / receipt["run_sha256"]
    folder.mkdir(parents=True, exist_ok=True)
    path: Path = folder / receipt_name(receipt)
    write_json(path, {**receipt, "seal": seal.make_seal(_content(receipt))})
    os.utime(own_receipts())  # Anyone who watches for new receipts looks at this folder alone.
    return path


def receipts_state() -> int:
    """Return what changes when this user keeps a receipt: when that was last, in ns since 1970; 0 for never."""
    try:
        return own_receipts().stat().st_mtime_ns
    except OSError:
        return 0


def receipt_name(receipt: dict[str, Any]) -> str:
    """Return the name of a receipt's file, which sorts by kind and time: `replay-20261123-201500.123.json`."""
    date, time = receipt["made_at"][:23].split("T")
    return f"{receipt['kind']}-{date.replace('-', '')}-{time.replace(':', '')}.json"


def receipts_of(folder: Path, sha256: str) -> Iterator[tuple[Path, dict[str, Any], bool]]:
    """Yield the receipts for a run: file, document, and whether this user made it; others in its folder are ignored.

    Args:
        folder: The run's folder, which may hold receipts that came with it.
        sha256: The hash of its manifest.
    """
    for place in (own_receipts() / sha256, folder / layout.RECEIPTS):
        for path, receipt in receipts_in(place, sha256):
            yield path, receipt, seal.holds(receipt.get("seal"), _content(receipt))


def receipts_in(place: Path, sha256: str) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield the valid receipts in a folder that are for a run, by any author: file and document.

    Args:
        place: The folder.
        sha256: The hash of the run's manifest.
    """
    for path in _files(place):
        document = read_document(path, "receipt")
        receipt = document.value
        if receipt is not None and not document.problems and receipt["run_sha256"] == sha256:
            yield path, receipt


def receipt_line(receipt: dict[str, Any]) -> str:
    """Return what a receipt states, on one line and without what a terminal would obey."""
    return visible(receipt["said"]).replace("\n", " ")


def _content(receipt: dict[str, Any]) -> bytes:
    return _DOMAIN + sha256_json({key: value for key, value in receipt.items() if key != "seal"}).encode()


def _files(place: Path) -> list[Path]:
    try:
        return sorted(path for path in place.iterdir() if path.suffix == ".json" and path.is_file())[-_MOST:]
    except OSError:
        return []
