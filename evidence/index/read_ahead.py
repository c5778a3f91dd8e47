"""The files of run folders fetched from the disk while other folders are read.

Folders that nobody has read for a while are not in memory, and reading one file after the other waits for the disk each
time. Nothing is read here; the system is told what will be.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

from evidence.run.layout import MANIFEST, ROLES
from evidence.run.system import opened

MOST_BYTES = 4 * 2**20
"""Of a longer file this much; the system is ahead by itself of whoever reads one through."""


def read_ahead(folders: Iterable[Path]) -> None:
    """Say which files of these folders will be read; what is not there, or is no file, is passed over.

    Where the system takes no such word (it is not in Python for macOS and Windows), nothing is done.
    """
    if not hasattr(os, "posix_fadvise"):
        return
    for folder in folders:
        root = f"{folder}{os.sep}"  # Thousands of paths take a while to make.
        for name in (MANIFEST, *ROLES):
            with contextlib.suppress(OSError):
                _announce(root + name)


def _announce(path: str) -> None:
    file = opened(Path(path), os.O_RDONLY)
    try:
        os.posix_fadvise(file, 0, MOST_BYTES, os.POSIX_FADV_WILLNEED)
    finally:
        os.close(file)
