"""Identify the code that ran: commit, branch, and differences from the commit.

The code is the git checkout or the installation that contains this package. A wheel carries the identity of the
checkout that it was built from; an installation from a repository has its commit in `direct_url.json` (PEP 610).
`setup.py` loads this file by its path, so it imports nothing but the standard library.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from base64 import urlsafe_b64encode
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).resolve().parents[2]
"""Folder of the packages."""
CODE_FOLDERS = ("trainproof", "trainer", "launch", "evidence", "schemas", "dashboard")
"""The packages; an untracked file in them could change what runs."""
NOT_CODE = (":(exclude)submission_runs", ":(exclude)docs", ":(exclude)*.md")
"""Paths that may differ from the commit without changing what runs."""
BUILT_FROM = "trainproof/built_from.json"
"""File of a wheel with the identity of the checkout that it was built from; written by `setup.py`."""
MAX_LISTED = 20
"""Edited files that the manifest lists."""
IDENTITY = ("commit", "committed_at", "branch", "dirty", "diff_sha256")


def code_identity(source: Path = SOURCE) -> dict[str, Any]:
    """Return the group `code` of the manifest, with None for the fields of an unknown commit."""
    installed = distribution("trainproof")
    if identity := checkout_identity(source):
        return {"version": installed.version, **identity, "source": "checkout"}
    # An editable installation does not contain this file.
    if Path(str(installed.locate_file("trainer/recorder/code.py"))).resolve() == Path(__file__).resolve():
        return {"version": installed.version, **installed_identity(installed)}
    return {"version": installed.version, **dict.fromkeys((*IDENTITY, "source"))}


def checkout_identity(source: Path) -> dict[str, Any] | None:
    """Return the identity of a git checkout, or None if the folder is not a checkout of trainproof."""
    head = _git(source, "show", "--no-patch", "--format=%H %cI", "HEAD")
    # An installed copy may lie inside a user's checkout, for example in .venv; git does not track it there.
    if head is None or not _git(source, "ls-files", "trainer/run.py"):
        return None
    commit, committed_at = head.split()
    difference = _difference_from_commit(source)
    return {
        "commit": commit,
        "committed_at": committed_at,
        "branch": (_git(source, "symbolic-ref", "--short", "-q", "HEAD") or "").strip() or None,
        "dirty": bool(difference),
        "diff_sha256": hashlib.sha256(difference).hexdigest() if difference else None,
    }


def _difference_from_commit(source: Path) -> bytes:
    """Return git's diff followed by every untracked file of the packages."""
    parts = [_git(source, "diff", "HEAD", "--", ".", *NOT_CODE) or ""]
    listed = _git(source, "ls-files", "--others", "--exclude-standard", "-z", "--", *CODE_FOLDERS) or ""
    for name in sorted(filter(None, listed.split("\0"))):
        parts += [name, os.fsdecode((source / name).read_bytes())]
    return os.fsencode("\0".join(parts))


def _git(folder: Path, *arguments: str) -> str | None:
    """Return the output of a git command, or None if it fails or git is missing."""
    command = ["git", "-C", str(folder), *arguments]
    try:
        return os.fsdecode(subprocess.run(command, capture_output=True, check=True, timeout=60).stdout)
    except (FileNotFoundError, subprocess.SubprocessError):
        return None


def installed_identity(installed: Distribution) -> dict[str, Any]:
    """Return commit and its source (`wheel`, `direct_url` or None), a hash of the installed files, and edited files."""
    home, files = Path(str(installed.locate_file(""))), installed.files or ()
    recorded = {file.as_posix(): file.hash.value for file in files if file.hash and file.parts[0] in CODE_FOLDERS}
    present = {
        # In the notation of RECORD.
        path.relative_to(home).as_posix(): urlsafe_b64encode(hashlib.sha256(path.read_bytes()).digest()).decode()[:-1]
        for package in CODE_FOLDERS
        for path in sorted((home / package).rglob("*"))
        if path.is_file() and path.suffix != ".pyc"
    }
    differs = sorted(name for name in recorded.keys() | present.keys() if recorded.get(name) != present.get(name))
    source, identity = _recorded_identity(installed)
    if identity["commit"] is not None and differs:
        edits = {name: present.get(name, "missing") for name in differs}
        identity |= {"dirty": True, "diff_sha256": _digest(edits | {BUILT_FROM: identity["diff_sha256"] or ""})}
    return {**identity, "source": source, "installed_sha256": _digest(present), "differs": differs[:MAX_LISTED]}


def _recorded_identity(installed: Distribution) -> tuple[str | None, dict[str, Any]]:
    record = Path(str(installed.locate_file(BUILT_FROM)))
    built_from = json.loads(record.read_text("utf-8")) if record.is_file() else None
    if isinstance(built_from, dict) and isinstance(built_from.get("commit"), str):
        return "wheel", {name: built_from.get(name) for name in IDENTITY}
    unknown: dict[str, Any] = dict.fromkeys(IDENTITY)
    match json.loads(installed.read_text("direct_url.json") or "null"):
        case {"vcs_info": {"vcs": "git", "commit_id": str(commit)}}:
            # The installer checked out the commit itself, so the tree was clean.
            return "direct_url", {**unknown, "commit": commit, "dirty": False}
    return None, unknown


def _digest(hashes: dict[str, str]) -> str:
    """Return one hash over paths and their hashes, in the order of the paths."""
    return hashlib.sha256("".join(f"{name}\0{hashes[name]}\n" for name in sorted(hashes)).encode()).hexdigest()
