"""TP2xx: whether the files are the ones that the run wrote.

The manifest lists every evidence file with size and hash when the run is sealed. These rules hold the folder against
that list. That a list could have been rewritten with the files is for other families to find.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from evidence.records.facts import Facts, finding
from evidence.rules.contradiction.log import SEALED
from evidence.run import layout
from evidence.run.hashes import CHUNK_BYTES, sha256_file, sha256_manifest
from evidence.run.unreadable import is_lfs_pointer
from schemas.problems import Problem


def manifest_is_as_sealed(facts: Facts) -> Iterator[Problem]:
    """Yield a problem where the log states another hash of the manifest; logs without one are skipped."""
    if facts.manifest is None or not facts.is_sealed:
        return
    stated = [
        (row, record["fields"]["manifest_sha256"])
        for row, record in enumerate(facts.log or [], start=1)
        if record["event"] == SEALED and "manifest_sha256" in record["fields"]
    ]
    actual = sha256_manifest(facts.manifest)
    if stated and stated[-1][1] != actual:
        row, sealed = stated[-1]
        place = f"line {facts.run.log().line_of(row - 1)} of log.jsonl"
        what = f"The manifest has the hash {_short(actual)}; {place} states {_short(str(sealed))}."
        yield finding(facts.folder, "TP212", layout.MANIFEST, what, expected=str(sealed))


def artifacts_match(facts: Facts) -> Iterator[Problem]:
    """Yield a problem for each listed file that is missing or differs."""
    for index, artifact in enumerate(_artifacts(facts)):
        path = artifact["path"]
        pointer = f"/artifacts/{index}"
        if path == layout.MANIFEST:
            continue  # No file can hold its own hash; `artifacts_are_named_once` states it.
        if path in facts.files:
            yield from _differences(facts.folder, artifact, pointer)
        elif not _is_link(facts.folder, path):
            yield finding(
                facts.folder,
                "TP203",
                layout.MANIFEST,
                f"{path} is listed and missing from the folder.",
                expected=f"{path} with {artifact['bytes']} bytes",
                pointer=pointer,
            )


def artifacts_are_complete(facts: Facts) -> Iterator[Problem]:
    """Yield a problem for each evidence file that a sealed run does not list."""
    if not facts.is_sealed:
        return
    listed = {artifact["path"] for artifact in _artifacts(facts)}
    for name in facts.files:
        if name in layout.ROLES and name not in listed:
            yield finding(facts.folder, "TP204", name, f"{name} is not in the manifest's artifact list.")


def artifacts_are_named_once(facts: Facts) -> Iterator[Problem]:
    """Yield a problem for each path that is listed again or that no list can hold, and for each wrong role."""
    seen = set()
    for index, artifact in enumerate(_artifacts(facts)):
        path, role = artifact["path"], artifact["role"]
        pointer = f"/artifacts/{index}"
        if path in seen or path == layout.MANIFEST:
            reason = "a second time" if path in seen else "in itself"
            yield finding(
                facts.folder,
                "TP205",
                layout.MANIFEST,
                f"The artifact list names {path} {reason}.",
                pointer=pointer,
            )
        seen.add(path)
        right = layout.ROLES.get(path, "other")
        if role != right:
            yield finding(
                facts.folder,
                "TP208",
                layout.MANIFEST,
                f"{path} has the role {role}.",
                expected=right,
                pointer=f"{pointer}/role",
            )


def scores_name_their_predictions(facts: Facts) -> Iterator[Problem]:
    """Yield a problem where eval_summary.json states the hash of other predictions than the manifest lists."""
    if facts.eval_summary is None:
        return
    stated = {"": facts.eval_summary["predictions"]}
    if facts.eval_summary["baseline"]:
        stated["/baseline"] = facts.eval_summary["baseline"]["predictions"]
    listed = {artifact["path"]: artifact["sha256"] for artifact in _artifacts(facts)}
    for place, predictions in stated.items():
        name = predictions["path"]
        in_list = listed.get(name)
        if in_list and in_list != predictions["sha256"]:
            yield finding(
                facts.folder,
                "TP211",
                layout.EVAL_SUMMARY,
                f"The scores were computed from a {name} with hash {_short(predictions['sha256'])}; "
                f"the manifest lists one with {_short(in_list)}.",
                expected=in_list,
                pointer=f"{place}/predictions/sha256",
            )


def _differences(folder: Path, artifact: dict[str, Any], pointer: str) -> Iterator[Problem]:
    path = artifact["path"]
    file = folder / path
    try:
        actual = sha256_file(file)
        size = file.stat().st_size
    except OSError as error:
        yield finding(folder, "TP210", path, f"{path} cannot be read: {error.strerror or error}.")
        return
    if is_lfs_pointer(file):
        yield finding(folder, "TP213", path, f"{path} is a Git LFS pointer of {size} bytes, not the file itself.")
        return
    if actual == artifact["sha256"]:
        if size != artifact["bytes"]:
            yield finding(
                folder,
                "TP207",
                layout.MANIFEST,
                f"{path} has {size} bytes; the list states {artifact['bytes']}.",
                expected=str(size),
                pointer=f"{pointer}/bytes",
            )
    elif conversion := _line_end_conversion(file, artifact["sha256"]):
        yield finding(folder, "TP202", path, f"{path} matches its hash after {conversion} conversion.")
    else:
        sizes = "" if size == artifact["bytes"] else f", and {size} bytes instead of {artifact['bytes']}"
        yield finding(
            folder,
            "TP201",
            path,
            f"{path} has the hash {_short(actual)}; the manifest states {_short(artifact['sha256'])}{sizes}.",
            expected=artifact["sha256"],
        )


def _line_end_conversion(path: Path, sha256: str) -> str | None:
    """Return which conversion of line ends gives the stated hash: `CRLF` where the file has CRLF and had LF."""
    as_lf, as_crlf = hashlib.sha256(), hashlib.sha256()
    with path.open("rb") as file:
        held = b""
        while block := file.read(CHUNK_BYTES):
            text = held + block
            held = b"\r" if text.endswith(b"\r") else b""  # Its newline may begin the next block.
            lf = text.removesuffix(held).replace(b"\r\n", b"\n")
            as_lf.update(lf)
            as_crlf.update(lf.replace(b"\n", b"\r\n"))
    for name, converted in (("CRLF", as_lf), ("LF", as_crlf)):
        converted.update(held)
        if converted.hexdigest() == sha256:
            return name
    return None


def _artifacts(facts: Facts) -> list[dict[str, Any]]:
    return [] if facts.manifest is None else list(facts.manifest["artifacts"])


def _is_link(folder: Path, path: str) -> bool:
    """Return whether something that is not a regular file stands there; reading the folder has reported it."""
    return path in layout.ROLES and ((folder / path).is_symlink() or (folder / path).exists())


def _short(sha256: str) -> str:
    return f"{sha256[:12]}…"


CHECKS = (
    manifest_is_as_sealed,
    artifacts_match,
    artifacts_are_complete,
    artifacts_are_named_once,
    scores_name_their_predictions,
)
