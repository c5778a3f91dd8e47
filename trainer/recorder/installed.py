"""What an installation states about the code in it: the commit of its wheel, and whether its files were edited since.

A wheel carries the record that `setup.py` makes of the checkout it was built from; an installation from a repository
has its commit in `direct_url.json` (PEP 610). Every installed file is compared with the RECORD of the distribution.
"""

from __future__ import annotations

import hashlib
import json
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from importlib.metadata import Distribution
from pathlib import Path
from typing import Any

from trainer.recorder.checkout import CODE_FOLDERS

BUILT_FROM = "trainproof/built_from.json"
"""The record in a wheel: `checkout_identity` of the tree it was built from. `setup.py` writes it."""

MOST_NAMED = 20
"""Edited files that the manifest names."""

_IDENTITY = ("commit", "committed_at", "branch", "dirty", "diff_sha256")


def holds(distribution: Distribution) -> bool:
    """Return whether this very file is one that the distribution installed; an editable one installs none."""
    return Path(str(distribution.locate_file("trainer/recorder/installed.py"))).resolve() == Path(__file__).resolve()


def installed_identity(distribution: Distribution) -> dict[str, Any]:
    """Return who states the commit, the commit as stated, a hash over the installed files, and which were edited."""
    stated = recorded_hashes(distribution)
    present = dict(present_hashes(distribution))
    differs = sorted(name for name in stated.keys() | present.keys() if stated.get(name) != present.get(name))
    source, identity = stated_identity(distribution)
    if identity["commit"] is not None and differs:
        edits = {name: present.get(name, "missing") for name in differs}
        identity |= {"dirty": True, "diff_sha256": digest_of(edits | {BUILT_FROM: identity["diff_sha256"] or ""})}
    return {**identity, "source": source, "installed_sha256": digest_of(present), "differs": differs[:MOST_NAMED]}


def stated_identity(distribution: Distribution) -> tuple[str | None, dict[str, Any]]:
    """Return who states the commit (`wheel`, `direct_url`, None for no one), and the group `code` without edits."""
    record = Path(str(distribution.locate_file(BUILT_FROM)))
    built_from = json.loads(record.read_text("utf-8")) if record.is_file() else None
    if isinstance(built_from, dict) and isinstance(built_from.get("commit"), str):
        return "wheel", {name: built_from.get(name) for name in _IDENTITY}
    unknown: dict[str, Any] = dict.fromkeys(_IDENTITY)
    match json.loads(distribution.read_text("direct_url.json") or "null"):
        case {"vcs_info": {"vcs": "git", "commit_id": str(commit)}}:
            # The installer checked out the commit itself, so the tree was clean.
            return "direct_url", {**unknown, "commit": commit, "dirty": False}
    return None, unknown


def recorded_hashes(distribution: Distribution) -> dict[str, str]:
    """Return the hash that RECORD states for each file of the packages, by path."""
    files = distribution.files or ()
    return {file.as_posix(): file.hash.value for file in files if file.hash and file.parts[0] in CODE_FOLDERS}


def present_hashes(distribution: Distribution) -> Iterator[tuple[str, str]]:
    """Yield path and hash of every file in the packages' folders, in RECORD's notation; compiled files left out."""
    home = Path(str(distribution.locate_file("")))
    for package in CODE_FOLDERS:
        for path in sorted((home / package).rglob("*")):
            if path.is_file() and path.suffix != ".pyc":
                digest = hashlib.sha256(path.read_bytes()).digest()
                yield path.relative_to(home).as_posix(), urlsafe_b64encode(digest).rstrip(b"=").decode()


def digest_of(hashes: dict[str, str]) -> str:
    """Return one hash over paths and their hashes, in the order of the paths."""
    return hashlib.sha256("".join(f"{name}\0{hashes[name]}\n" for name in sorted(hashes)).encode()).hexdigest()
