"""Bundles for tests: built from synthetic runs, taken apart, changed and packed again."""

import json
import zipfile
from hashlib import sha256
from pathlib import Path

from synthetic import write_run

from evidence.bundle.build import build_bundle
from evidence.bundle.contents import hash_lines
from evidence.bundle.reading import canonical_zip


def small_bundle(folder: Path, **changes: object) -> Path:
    run = write_run(folder / "runs", "demo-1", steps=4, items=6, **changes)
    return build_bundle([run], folder / "demo-1.zip").output


def contents(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def pack(files: dict[str, bytes], path: Path) -> Path:
    path.write_bytes(b"".join(canonical_zip(files)))
    return path


def listed_again(files: dict[str, bytes]) -> dict[str, bytes]:
    """Return the files with digest and hash list rewritten, as a forger would who knows the format."""
    files = dict(files)
    hashes = {name: sha256(content).hexdigest() for name, content in files.items() if name != "MANIFEST.sha256"}
    manifest = json.loads(files["bundle_manifest.json"])
    own = {name: each for name, each in hashes.items() if name != "bundle_manifest.json"}
    manifest["content_sha256"] = sha256(hash_lines(own).encode()).hexdigest()
    files["bundle_manifest.json"] = json.dumps(manifest, ensure_ascii=False, indent=2).encode() + b"\n"
    hashes["bundle_manifest.json"] = sha256(files["bundle_manifest.json"]).hexdigest()
    files["MANIFEST.sha256"] = hash_lines(hashes).encode()
    return files
