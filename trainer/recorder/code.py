"""Which code ran: commit, branch, and whether it differs from the commit.

The code is trainproof's own: the git checkout that holds this package or, for an installed copy, none, since a user's
repository around it says nothing about the trainer.
"""

from __future__ import annotations

import hashlib
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).resolve().parents[2]
"""The folder that holds the packages."""

NOT_CODE = (":(exclude)submission_runs", ":(exclude)docs", ":(exclude)*.md")
"""What may differ without changing what runs: runs themselves and prose."""

CODE_FOLDERS = ("trainer", "evidence", "schemas", "trainproof")
"""Where a file that git does not know could change what runs."""


def code_identity(source: Path = SOURCE) -> dict[str, Any]:
    """Return the manifest's group `code`; every git field is None outside a git checkout."""
    commit = git(source, "rev-parse", "HEAD")
    # An installed copy may lie inside somebody's checkout (a .venv in a repository): then git does not track it.
    if commit is None or not git(source, "ls-files", "trainer/run.py"):
        unknown = dict.fromkeys(("commit", "committed_at", "branch", "dirty", "diff_sha256"))
        return {"version": version("trainproof"), **unknown}
    difference = difference_from_commit(source)
    return {
        "version": version("trainproof"),
        "commit": commit.strip(),
        "committed_at": (git(source, "show", "--no-patch", "--format=%cI", "HEAD") or "").strip() or None,
        "branch": (git(source, "symbolic-ref", "--short", "-q", "HEAD") or "").strip() or None,
        "dirty": bool(difference),
        "diff_sha256": hashlib.sha256(difference).hexdigest() if difference else None,
    }


def difference_from_commit(source: Path) -> bytes:
    """Return the code's difference from its commit: git's own diff, then every unknown code file whole."""
    diff = (git(source, "diff", "HEAD", "--", ".", *NOT_CODE) or "").encode("utf-8", "surrogateescape")
    listed = git(source, "ls-files", "--others", "--exclude-standard", "-z", "--", *CODE_FOLDERS) or ""
    unknown = [name for name in sorted(listed.split("\0")) if name]
    parts = [diff]
    for name in unknown:
        parts += [name.encode("utf-8", "surrogateescape"), (source / name).read_bytes()]
    return b"\0".join(parts) if unknown else diff


def git(folder: Path, *arguments: str) -> str | None:
    """Return what a git command prints; None if git is absent or the command fails."""
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            text=True,
            errors="surrogateescape",
            check=False,
            timeout=60,
        )
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
