"""Whether the files of an archive are those that its lists state."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Any

from evidence.bundle.format.documents import FileHash, content_sha256, read_hash_lines
from evidence.bundle.format.layout import BUNDLE_MANIFEST, HASHES, RUNS, SCHEMAS
from evidence.bundle.format.rules import refusal
from schemas.catalog import VERSION, kind_of, version_folder
from schemas.problems import Problem

_IN_RUN = 3
"""Parts of the path of a file that lies directly in a run folder."""


def list_problems(found: Mapping[str, FileHash], hash_text: bytes | None) -> Iterator[Problem]:
    """Yield in what the files of an archive differ from MANIFEST.sha256.

    Args:
        found: Every file of the archive, as it was read.
        hash_text: Content of MANIFEST.sha256. None: it is missing.
    """
    if hash_text is None:
        yield refusal("TP820", HASHES, f"The archive has no {HASHES}.")
        return
    stated = read_hash_lines(hash_text.decode("utf-8", "replace"))
    if stated is None:
        yield refusal("TP820", HASHES, f"{HASHES} has a line that is not `<sha256>  <path>`, or a path twice.")
        return
    for path in sorted(stated.keys() - found.keys()):
        yield refusal("TP821", path, f"{HASHES} names this file, and the archive does not hold it.")
    for path in sorted(found.keys() - stated.keys() - {HASHES}):
        yield refusal("TP822", path, f"{HASHES} does not name this file.")
    for path in sorted(found.keys() & stated.keys()):
        if found[path].sha256 != stated[path]:
            expected = f"SHA-256 {stated[path]}"
            yield refusal("TP823", path, f"The file has SHA-256 {found[path].sha256}.", expected=expected)


def manifest_problems(found: Mapping[str, FileHash], manifest: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield in what the files of an archive differ from a valid bundle_manifest.json."""
    stated = [
        FileHash(path=each["path"], size_bytes=each["bytes"], sha256=each["sha256"]) for each in manifest["files"]
    ]
    by_path = {each.path: each for each in stated}
    actual = {path: each for path, each in found.items() if path not in {HASHES, BUNDLE_MANIFEST}}
    if len(by_path) < len(stated):
        yield refusal("TP824", BUNDLE_MANIFEST, "A file is listed twice.")
    for path in sorted(by_path.keys() ^ actual.keys()):
        where = "and the archive does not hold it" if path in by_path else "though the archive holds it"
        verb = "names" if path in by_path else "does not name"
        yield refusal("TP824", BUNDLE_MANIFEST, f"It {verb} `{path}`, {where}.")
    for path in sorted(by_path.keys() & actual.keys()):
        if by_path[path] != actual[path]:
            what = f"It states another size or hash of `{path}` than the file has."
            yield refusal("TP824", BUNDLE_MANIFEST, what)
    digest = content_sha256(stated)
    if digest != manifest["content_sha256"]:
        what = f"It states the content digest {manifest['content_sha256']}."
        yield refusal("TP824", BUNDLE_MANIFEST, what, expected=f"{digest}, which follows from its files")
    yield from _run_list_problems(found, manifest)


def _run_list_problems(found: Mapping[str, FileHash], manifest: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield in what the runs of an archive differ from those that its manifest names."""
    stated = [run["run_id"] for run in manifest["runs"]]
    actual = run_names(found)
    if len(set(stated)) < len(stated):
        yield refusal("TP829", BUNDLE_MANIFEST, "A run is listed twice.")
    for name in sorted(set(stated) ^ actual):
        what = f"It names the run `{name}`, which is not inside." if name in stated else f"It does not name `{name}`."
        yield refusal("TP829", BUNDLE_MANIFEST, what)
    for run in manifest["runs"]:
        if run["path"] != f"{RUNS}/{run['run_id']}":
            what = f"It states `{run['path']}` as the folder of the run `{run['run_id']}`."
            yield refusal("TP829", BUNDLE_MANIFEST, what, expected=f"`{RUNS}/{run['run_id']}`")


def needed_schema_problems(found: Mapping[str, FileHash]) -> Iterator[Problem]:
    """Yield which schemas an archive lacks of those that its own documents follow; later kinds need not be there."""
    documents = [path.split("/") for path in found if path.startswith(f"{RUNS}/")]
    kinds = {kind for parts in documents if len(parts) == _IN_RUN and (kind := kind_of(parts[-1]))}
    for kind in sorted(kinds | {"bundle_manifest", "types"}):
        path = f"{SCHEMAS}/{version_folder(VERSION)}/{kind}.schema.json"
        if path not in found:
            yield refusal("TP828", path, "The schema is missing.")


def schema_problems(found: Mapping[str, FileHash]) -> Iterator[Problem]:
    """Yield in what the schemas of an archive differ from those that this build packs."""
    ours, theirs = published_schemas(), {path for path in found if path.startswith(f"{SCHEMAS}/")}
    for path in sorted(ours.keys() | theirs):
        if path not in ours:
            yield refusal("TP828", path, "No schema of this name was published.")
        elif path not in theirs:
            yield refusal("TP828", path, "The schema is missing.")
        elif hashlib.sha256(ours[path]).hexdigest() != found[path].sha256:
            yield refusal("TP828", path, "The schema differs from the published one.")


def published_schemas(version: str = VERSION) -> dict[str, bytes]:
    """Return the schema files of a version by their path inside a bundle."""
    folder = version_folder(version)
    source = files("schemas") / "documents" / folder
    names = sorted(item.name for item in source.iterdir() if item.name.endswith(".schema.json"))
    return {f"{SCHEMAS}/{folder}/{name}": (source / name).read_bytes() for name in names}


def run_names(found: Mapping[str, FileHash]) -> set[str]:
    """Return the names of the run folders of an archive."""
    return {path.split("/")[1] for path in found if path.startswith(f"{RUNS}/")}
