"""The two lists of a bundle: MANIFEST.sha256 for any machine, bundle_manifest.json for ours."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import evidence
import foreign
import schemas
from evidence.bundle.format.layout import RUNS
from evidence.hashes import sha256_file
from schemas.catalog import VERSION

PROGRAM = "trainproof"
_LINE = re.compile(r"([0-9a-f]{64})  (\S.*)")


@dataclass(frozen=True, kw_only=True)
class FileHash:
    """One file of a bundle."""

    path: str
    """Path inside the bundle."""
    size_bytes: int
    """Size of its content."""
    sha256: str
    """Hash of its content."""


@dataclass(frozen=True, kw_only=True)
class StatedRun:
    """One run of a bundle and what it was graded."""

    run_id: str
    """Name of its folder under `runs/`."""
    grade: str
    """Its grade when the bundle was built."""
    reasons: tuple[str, ...]
    """Why it has this grade."""


def program_version() -> str:
    """Return the version of the program that builds or verifies."""
    return version(PROGRAM)


@cache
def program_build() -> str:
    """Return a hash over the sources that judge and pack: equal hashes make the same report of the same runs.

    Two commits of one version can differ in a word of a finding; each would else call the other's report forged.
    """
    lines = {}
    for package in (evidence, foreign, schemas):
        root = Path(package.__path__[0])
        for file in sorted(root.rglob("*")):
            if file.suffix in {".py", ".json"}:
                lines[f"{root.name}/{file.relative_to(root).as_posix()}"] = sha256_file(file)
    return hashlib.sha256(hash_lines(lines).encode("utf-8")).hexdigest()


def hash_lines(hashes: Mapping[str, str]) -> str:
    """Return `<sha256>  <path>` lines in the order of paths, as `sha256sum -c` reads them.

    No path has a newline or a backslash (`evidence.bundle.format.layout`), so none needs the escapes of that format.
    """
    return "".join(f"{hashes[path]}  {path}\n" for path in sorted(hashes))


def read_hash_lines(text: str) -> dict[str, str] | None:
    """Return hash by path, or None if a line has another form or a path stands twice."""
    hashes: dict[str, str] = {}
    for line in text.split("\n")[:-1]:
        match = _LINE.fullmatch(line)
        if match is None or match[2] in hashes:
            return None
        hashes[match[2]] = match[1]
    return hashes if text.endswith("\n") else None


def content_sha256(files: Iterable[FileHash]) -> str:
    """Return the content digest: the hash of the `hash_lines` of the files, whatever their compression.

    For one empty file `a` it is the hash of the line
    `e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  a` and its newline.
    """
    return hashlib.sha256(hash_lines({file.path: file.sha256 for file in files}).encode("utf-8")).hexdigest()


def bundle_manifest(
    files: Sequence[FileHash], runs: Sequence[StatedRun], *, partial: bool, redactions: Sequence[dict[str, Any]] = ()
) -> dict[str, Any]:
    """Return bundle_manifest.json: `files` are all files but the two lists themselves."""
    ordered = sorted(files, key=lambda file: file.path)
    return {
        "schema_version": VERSION,
        "made_by": {"name": PROGRAM, "version": program_version(), "build": program_build()},
        "content_sha256": content_sha256(ordered),
        "partial": partial,
        "runs": [
            {"run_id": run.run_id, "path": f"{RUNS}/{run.run_id}", "grade": run.grade, "reasons": list(run.reasons)}
            for run in sorted(runs, key=lambda run: run.run_id)
        ],
        "files": [{"path": file.path, "bytes": file.size_bytes, "sha256": file.sha256} for file in ordered],
    } | ({"redactions": sorted(redactions, key=lambda each: str(each["path"]))} if redactions else {})
