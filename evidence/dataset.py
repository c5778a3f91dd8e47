"""Find the training rows of a run: built-in rows, or a local file with the recorded hash."""

from __future__ import annotations

import stat
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from evidence.hashes import sha256_file
from evidence.run import Run
from schemas.catalog import DATASETS
from schemas.reading import read_rows

LARGEST_BYTES = 64 * 2**20
"""Size of the largest file of rows that is read."""

_BUILT_IN = Path(__file__).parents[1] / "trainer" / "data" / "builtin"

Stamp = tuple[int, int]
"""Size and mtime of a file."""


def dataset_file(run: Run) -> tuple[Path, Stamp] | None:
    """Return the file of a run's dataset with its size and mtime, or None if no local file has its hash."""
    if run.manifest is None or run.config is None:
        return None
    name, sha256 = run.config["data"].get("dataset", DATASETS[0]), run.manifest["dataset"]["sha256"]
    candidates = [_BUILT_IN / f"{name}.jsonl"] if name in DATASETS else [Path(name), run.folder / Path(name).name]
    for path in candidates:
        if (stamp := _stamp(path)) is not None and _hash(path, stamp) == sha256:
            return path, stamp
    return None


@lru_cache(maxsize=2)
def dataset_rows(path: Path, _stamp: Stamp) -> Sequence[dict[str, Any]] | None:
    """Return the rows of a dataset, or None if they do not follow the schema."""
    read = read_rows(path, "dataset_row")
    return None if any(problem.severity == "error" for problem in read.problems) else read.values


def _stamp(path: Path) -> Stamp | None:
    """Return size and mtime of a file that may be read; the path of an unknown run may name anything."""
    try:
        status = path.stat()
    except (OSError, ValueError):
        return None
    if not stat.S_ISREG(status.st_mode) or status.st_size > LARGEST_BYTES or path.suffix != ".jsonl":
        return None
    return status.st_size, status.st_mtime_ns


@lru_cache(maxsize=64)
def _hash(path: Path, _stamp: Stamp) -> str | None:
    try:
        return sha256_file(path)
    except OSError:
        return None
