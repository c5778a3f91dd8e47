"""What Kaggle attaches to a session, read-only: data sets, models, and outputs of earlier sessions."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

DEEPEST = 8
"""Folders inside each other that are looked into: Kaggle has owner, name and version, and a run lies in two more."""


def attached_folder() -> Path:
    """Return where it lies."""
    return Path(os.environ.get("TRAINPROOF_INPUT", "/kaggle/input"))


def walk_attached() -> Iterator[tuple[Path, list[str], list[str]]]:
    """Yield each attached folder with the names of its folders and files; one taken off the folders is left out."""
    top = attached_folder()
    for name, folders, files in os.walk(top):
        folders.sort()
        if len(Path(name).relative_to(top).parts) >= DEEPEST:
            folders.clear()
        yield Path(name), folders, files
