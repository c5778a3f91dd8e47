"""Bundles for tests: built from synthetic runs, taken apart, changed and packed again."""

from __future__ import annotations

import hashlib
import json
import zipfile
import zlib
from pathlib import Path

from synthetic import write_run

from evidence.bundle.build import build_bundle
from evidence.bundle.format.documents import FileHash, content_sha256, hash_lines
from evidence.bundle.zip.container import LocalHeader, ending, local_header


def small_bundle(folder: Path, **changes: object) -> Path:
    """Return a bundle of one small run."""
    run = write_run(folder / "runs", "demo-1", steps=4, items=6, **changes)
    return build_bundle([run], folder / "demo-1.zip").output


def contents(path: Path) -> dict[str, bytes]:
    """Return every file of an archive."""
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def pack(files: dict[str, bytes], path: Path) -> Path:
    """Write an archive in our own form."""
    stored = [
        LocalHeader(name=name, size_bytes=len(files[name]), crc32=zlib.crc32(files[name])) for name in sorted(files)
    ]
    body = b"".join(local_header(each) + files[each.name] for each in stored)
    path.write_bytes(body + ending(stored))
    return path


def listed_again(files: dict[str, bytes]) -> dict[str, bytes]:
    """Return the files with both lists written anew, as a forger would who knows the format."""
    files = dict(files)
    manifest = json.loads(files["bundle_manifest.json"])
    own = [
        FileHash(path=name, size_bytes=len(content), sha256=hashlib.sha256(content).hexdigest())
        for name, content in sorted(files.items())
        if name not in {"MANIFEST.sha256", "bundle_manifest.json"}
    ]
    manifest["files"] = [{"path": each.path, "bytes": each.size_bytes, "sha256": each.sha256} for each in own]
    manifest["content_sha256"] = content_sha256(own)
    files["bundle_manifest.json"] = json.dumps(manifest, ensure_ascii=False, indent=2).encode() + b"\n"
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in files.items() if name != "MANIFEST.sha256"}
    files["MANIFEST.sha256"] = hash_lines(hashes).encode()
    return files
