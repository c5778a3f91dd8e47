"""The rows that a run learned from, where a file with the stated hash is here.

Built-in rows come with this package; the rows of a file are looked at where the configuration's path, or the run's own
folder, has a file with the stated hash.
"""

from __future__ import annotations

import stat
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from evidence.records.facts import Facts
from evidence.run.hashes import sha256_file
from schemas.catalog import DATASETS
from schemas.reading import read_rows

LARGEST_FILE = 64 * 2**20
"""Bytes of the largest file of rows that is read again."""
_BUILT_IN = Path(__file__).parents[2] / "trainer" / "data"

Stamp = tuple[int, int]
"""Size and time of a file."""


def dataset_file(facts: Facts) -> tuple[Path, Stamp] | None:
    """Return the file of a run's dataset, with its size and time, or None if it is not here."""
    if facts.manifest is None or facts.config is None:
        return None
    name, sha256 = facts.config["data"].get("dataset", DATASETS[0]), facts.manifest["dataset"]["sha256"]
    places = [_BUILT_IN / f"{name}.jsonl"] if name in DATASETS else [Path(name), facts.folder / Path(name).name]
    for path in places:
        if (stamp := _stamp(path)) is not None and _hash(path, stamp) == sha256:
            return path, stamp
    return None


@lru_cache(maxsize=2)
def dataset_rows(path: Path, _stamp: Stamp) -> Sequence[dict[str, Any]] | None:
    """Return the rows of a dataset's file as our schema has them, or None if it holds rows of another tool's shape."""
    read = read_rows(path, "dataset_row")
    return None if any(problem.severity == "error" for problem in read.problems) else read.values


def _stamp(path: Path) -> Stamp | None:
    """Return size and time of a file of rows that may be read; a stranger's path may name anything."""
    try:
        status = path.stat()
    except (OSError, ValueError):
        return None
    if not stat.S_ISREG(status.st_mode) or status.st_size > LARGEST_FILE or path.suffix != ".jsonl":
        return None
    return status.st_size, status.st_mtime_ns


@lru_cache(maxsize=64)
def _hash(path: Path, _stamp: Stamp) -> str | None:
    try:
        return sha256_file(path)
    except OSError:
        return None
