"""Files that Git LFS keeps elsewhere: a checkout that did not fetch them has a short text in place of each."""

from __future__ import annotations

from pathlib import Path

_BEGINS = b"version https://git-lfs.github.com/spec/"


def is_lfs_pointer(path: Path) -> bool:
    """Return whether a file is the pointer that Git LFS leaves in place of a file.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        return file.read(len(_BEGINS)) == _BEGINS
