"""stamps.json of a run: the answers of time authorities, beside the files that the manifest lists.

The first stamp is of the start: configuration, data and plan, before the first step. The last is of the manifest,
which states the hash of every file, the head of the chain among them. Between the two the run took place.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from evidence.proof.keys import limited_content
from evidence.proof.stamps.authority import StampVerdict, check, request_stamp, stamp_path
from evidence.proof.trust import certificate_of, loaded_certificate, trust_path, trusted_entries
from evidence.run import layout
from evidence.run.extras import install_command
from evidence.run.hashes import sha256_file
from evidence.run.write import write_json
from schemas.catalog import VERSION
from schemas.formats import visible
from schemas.problems import ProblemError
from schemas.validate import read_document

Moment = Literal["start", "manifest"]
Stamped = Literal["start", "manifest", "zip"]

WHAT = {
    "start": "configuration, data and plan",
    "manifest": "the manifest with the hash of every file",
    "zip": "the zip",
}
"""What each moment's stamp is of, in words."""


@dataclass(frozen=True, kw_only=True)
class KeptStamp:
    """One row of stamps.json, or the stamp beside a zip.

    Attributes:
        of: What was stamped.
        sha256: The hash that the authority was shown.
        actual: The hash that this run has. None: it is unknown.
        authority: Address of the authority.
        answer: What it answered. None: it did not.
        failed: Why there is no stamp.
    """

    of: Stamped
    sha256: str
    actual: str | None
    authority: str
    answer: bytes | None
    failed: str | None


def start_sha256(config_sha256: str, dataset_sha256: str, plan_sha256: str) -> str:
    """Return the hash that stands for a run's start: SHA-256 of three lines, each a name, an equals sign and a hash."""
    lines = f"config.yaml={config_sha256}\ndata={dataset_sha256}\nplan.json={plan_sha256}\n"
    return hashlib.sha256(lines.encode("ascii")).hexdigest()


def start_of(folder: Path, manifest: Mapping[str, Any]) -> str | None:
    """Return the hash of a run's start, computed from its folder. None: a part of it is missing."""
    dataset = manifest.get("dataset")
    data = dataset.get("sha256") if isinstance(dataset, dict) else None
    try:
        config, plan = sha256_file(folder / layout.CONFIG), sha256_file(folder / layout.PLAN)
    except OSError:
        return None
    return start_sha256(config, data, plan) if isinstance(data, str) else None


def stamp_run(folder: Path, of: Moment, sha256: str, authority: str, now: datetime) -> str | None:
    """Request a stamp of an authority and keep its answer, or why it is missing, in the run's stamps.json.

    Returns:
        Why there is no stamp, as a sentence; None: there is one.

    Raises:
        OSError: stamps.json cannot be written.
    """
    answer, failed = None, None
    try:
        answer = request_stamp(authority, bytes.fromhex(sha256))
    except ProblemError as error:
        failed = error.problems[0].what
    row = {
        "of": of,
        "sha256": sha256,
        "authority": authority,
        "asked_at": now.isoformat(timespec="seconds"),
        "response": base64.b64encode(answer).decode("ascii") if answer else None,
        "failed": failed,
    }
    path = folder / layout.STAMPS
    there = read_document(path, "stamps").value if path.exists() else None
    rows = there["stamps"] if there else []
    write_json(path, {"schema_version": VERSION, "stamps": [*rows, row]})
    return failed


def stamps_of(folder: Path, manifest: Mapping[str, Any] | None) -> tuple[KeptStamp, ...]:
    """Return the stamps that a run folder holds, each beside the hash that the run has; none where it has no list."""
    path = folder / layout.STAMPS
    document = read_document(path, "stamps") if path.is_file() else None
    if document is None or document.value is None or document.problems or manifest is None:
        return ()
    actual = {"start": start_of(folder, manifest), "manifest": sha256_file(folder / layout.MANIFEST)}
    return tuple(
        KeptStamp(
            of=each["of"],
            sha256=each["sha256"],
            actual=actual[each["of"]],
            authority=visible(each["authority"]),
            answer=base64.b64decode(each["response"]) if each["response"] else None,
            failed=each["failed"] and visible(each["failed"]),
        )
        for each in document.value["stamps"]
    )


def trusted_roots(named: Path | None) -> dict[str, Any]:
    """Return the root certificates that a reader trusts: the one named, else those on the trust list.

    Raises:
        ProblemError: Exit code 2: the file or the list cannot be used.
    """
    if named is not None:
        return {named.name: loaded_certificate(certificate_of(named)[0].encode(), str(named))}
    return {
        each.name: loaded_certificate(each.content.encode(), str(trust_path()))
        for each in trusted_entries("time authority")
    }


def stamp_worth(stamp: KeptStamp, roots: Mapping[str, Any]) -> StampVerdict | None:
    """Return what a kept stamp is worth to a reader; None where there is no answer, or nothing here that reads one."""
    if stamp.answer is None or stamp.actual is None or find_spec("rfc3161_client") is None:
        return None
    return check(stamp.answer, bytes.fromhex(stamp.actual), stamp.authority, roots)


def stamp_is_refuted(stamp: KeptStamp, worth: StampVerdict | None, *, asked: bool) -> bool:
    """Return whether a stamp speaks of something else, or does not hold under the certificate that the reader named.

    One that only lacks a trusted root is a claim, and refuted by nothing.
    """
    if worth is None or worth.problem is None:
        return False
    return asked or worth.stamp.digest != bytes.fromhex(stamp.actual or "")


def stamp_beside(file: Path) -> KeptStamp | None:
    """Return the time stamp that lies beside a zip, or None if it is missing or unreadable."""
    path = stamp_path(file)
    try:
        answer = limited_content(path)
    except OSError:
        return None
    digest = sha256_file(file)
    return KeptStamp(of="zip", sha256=digest, actual=digest, authority=path.name, answer=answer, failed=None)


def stamp_sentence(stamp: KeptStamp, worth: StampVerdict | None, *, asked: bool) -> str:
    """Return what a stamp states to this reader, in a sentence.

    Args:
        stamp: The stamp.
        worth: What it is worth.
        asked: Whether the reader named a root certificate for it.
    """
    what = WHAT[stamp.of]
    if stamp.failed is not None:
        return f"No time stamp of {what}: {stamp.failed}"
    if worth is None and find_spec("rfc3161_client") is None:
        return f"The time stamp of {what} was not read, which needs `rfc3161-client`: {install_command('witness')}."
    if worth is None or worth.stamp.time is None:
        return f"The time stamp of {what} cannot be checked: {worth.problem if worth else 'a file is missing.'}"
    at = f"{worth.stamp.time:%Y-%m-%d %H:%M:%S} UTC"
    if worth.root is not None:
        return f"{what[0].upper()}{what[1:]} existed before {at}, according to {worth.stamp.by} (root {worth.root})."
    if stamp_is_refuted(stamp, worth, asked=asked):
        return f"The time stamp of {what} does not hold. {worth.problem}"
    return (
        f"A time stamp of {what} says {at}, by {worth.stamp.by}; you trust no root certificate of this authority, so "
        "it is a claim."
    )


def told_by_authorities(folder: Path, manifest: Mapping[str, Any] | None) -> list[str]:
    """Return the worth of the time stamps of a run folder to a reader with the roots of the trust list, as sentences.

    Raises:
        ProblemError: Exit code 2: the trust list cannot be used, or a package that reads stamps is not installed.
    """
    stamps = stamps_of(folder, manifest)
    roots = trusted_roots(None) if stamps else {}
    return [stamp_sentence(stamp, stamp_worth(stamp, roots), asked=False) for stamp in stamps]
