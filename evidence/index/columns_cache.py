"""The metrics of long runs as arrays on disk, so that a page opens a million rows without reading their text again.

What is kept here can be deleted at any time, is never in a run folder, and is never judged: grades come from the rows.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from evidence.run.platform import user_folder
from schemas.catalog import number_names
from schemas.reading import SECONDS, Columns

LONG_ROWS = 50_000
"""Rows that take longer to read than a page should wait."""

MOST_BYTES = 2 * 2**30
"""Bytes kept in all; the oldest arrays go first."""

Signature = tuple[int, int]
"""Time of change in nanoseconds and size of the file that was read."""


def default_folder() -> Path:
    """Return the folder for such arrays in the user's cache."""
    return user_folder("XDG_CACHE_HOME", ".cache") / "columns"


def signature_of(metrics: Path) -> Signature | None:
    """Return the signature of a file, to be taken before it is read, or None if it is missing."""
    try:
        status = metrics.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


def keep(folder: Path, metrics: Path, signature: Signature, columns: Columns) -> None:
    """Keep the columns of a long file in place of those of its earlier state; without a disk for it, do nothing."""
    if len(columns["step"]) < LONG_ROWS:
        return
    place = _place(folder, metrics, signature)
    table = np.stack([columns[name] for name in (*number_names(), SECONDS)])
    # A page that finds nothing kept reads the rows: slower, and never wrong.
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as part:
            np.save(Path(part) / place.name, table)
            for earlier in folder.glob(f"{place.name.partition('-')[0]}-*.npy"):
                earlier.unlink()
            # The arrays are as old as what they were made of: of many runs those of the newest stay.
            os.utime(Path(part) / place.name, ns=(signature[0], signature[0]))
            (Path(part) / place.name).replace(place)
        _forget_oldest(folder)


def read_cached(folder: Path, metrics: Path) -> NDArray[np.float64] | None:
    """Return what is kept of a file as it is now, `[fields of a metric row, rows]` in their order, time as seconds."""
    signature = signature_of(metrics)
    if signature is None:
        return None
    try:
        table = np.load(_place(folder, metrics, signature), mmap_mode="r", allow_pickle=False)
    except (OSError, EOFError, ValueError):
        return None
    return table if table.dtype == np.float64 and table.shape[:1] == (len(number_names()) + 1,) else None


def _place(folder: Path, metrics: Path, signature: Signature) -> Path:
    name = hashlib.sha256(os.fsencode(metrics.resolve())).hexdigest()[:24]
    return folder / f"{name}-{signature[0]}-{signature[1]}.npy"


def _forget_oldest(folder: Path) -> None:
    total = 0
    newest_first = sorted(((path.stat(), path) for path in folder.glob("*.npy")), key=lambda one: -one[0].st_mtime_ns)
    for status, path in newest_first:
        total += status.st_size
        if total > MOST_BYTES:
            path.unlink()
