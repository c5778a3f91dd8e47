"""The folder outside every run that keeps what can be made again, and how much it may take."""

from __future__ import annotations

import os
from pathlib import Path

from evidence.layout import user_folder

FOLDER = "TRAINPROOF_CACHE"
"""Environment variable with the folder."""

SIZE = "TRAINPROOF_CACHE_MIB"
"""Environment variable with the size limit of the compiled programs of one processor, in MiB; 0 disables the cache."""

DEFAULT_MIB = 256
"""Room for hundreds of programs; docs/decisions/starting.md says what some take."""


def folder() -> Path:
    """Return the folder: `$TRAINPROOF_CACHE`, else the user's cache folder."""
    if stated := os.environ.get(FOLDER):
        return Path(stated)
    return user_folder("XDG_CACHE_HOME", ".cache")


def size_bytes() -> int:
    """Return the most bytes that are kept; a size that is no number is the default."""
    stated = os.environ.get(SIZE, "")
    return (int(stated) if stated.isdecimal() else DEFAULT_MIB) << 20
