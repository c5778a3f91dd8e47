"""What a git checkout states about the code in it: commit, branch, and the difference from the commit.

The build of a wheel reads this file by its path (`setup.py`), so it imports nothing but the standard library.
"""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path
from typing import Any

NOT_CODE = (":(exclude)submission_runs", ":(exclude)docs", ":(exclude)*.md")
"""What may differ without changing what runs: runs themselves and prose."""

CODE_FOLDERS = ("trainproof", "trainer", "launch", "evidence", "foreign", "schemas", "dashboard")
"""The packages. A file in them that git does not know could change what runs."""


def checkout_identity(source: Path) -> dict[str, Any] | None:
    """Return commit, time, branch, dirty and hash of the difference; None if the folder is not a checkout of ours."""
    commit = git(source, "rev-parse", "HEAD")
    # An installed copy may lie inside a user's checkout (a .venv in a repository): then git does not track it.
    if commit is None or not git(source, "ls-files", "trainer/run.py"):
        return None
    difference = difference_from_commit(source)
    return {
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
    """Return what a git command prints; None if git is missing or the command fails."""
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
