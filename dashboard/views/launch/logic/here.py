"""The models and the rows that are on this machine, and where rows that somebody drops are kept."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, islice
from pathlib import Path

from evidence.run.write import write_bytes
from launch.jobs.folder import launch_folder
from schemas.names import DATASETS, GGUF, MODELS
from schemas.problems.formats import count, size

ROWS = ("jsonl", "parquet", "txt")
"""Ends of the names of files that rows are read from."""

_FOLDER = "rows"
_MOST = 50
_LOOKED_AT = 2_000
"""Files and folders that are looked at; where a home folder has more, the rest is not offered."""
_COUNTED_BYTES = 1 << 24
"""Lines of a larger file are not counted for a label."""


@dataclass(frozen=True, kw_only=True)
class Offer:
    """Something that a configuration can name.

    Attributes:
        name: As the configuration names it.
        label: The name and how large it is.
    """

    name: str
    label: str


def models(folder: Path) -> list[Offer]:
    """Return the models that are built in and those in a folder or one below it, at most fifty."""
    found = []
    for path in _near(folder):
        if path.suffix.lower() == GGUF and path.is_file():
            found.append((path, path.stat().st_size))
        elif path.is_dir() and (path / "config.json").is_file() and (weights := list(path.glob("*.safetensors"))):
            found.append((path, sum(each.stat().st_size for each in weights)))
    built_in = [Offer(name=name, label=f"{name}, built in") for name in MODELS]
    return built_in + [_offer(folder, path, size(taken)) for path, taken in found[:_MOST]]


def datasets(folder: Path, root: Path) -> list[Offer]:
    """Return the rows that are built in, those in a folder or one below it, and those that were dropped here."""
    kept = launch_folder(root) / _FOLDER
    files = [*_near(folder), *(sorted(kept.iterdir()) if kept.is_dir() else ())]
    found = [path for path in files if path.suffix.lower().lstrip(".") in ROWS and path.is_file()]
    built_in = [Offer(name=name, label=f"{name}, built in") for name in DATASETS]
    return built_in + [_offer(folder, path, _length(path)) for path in found[:_MOST]]


def keep_rows(root: Path, name: str, content: bytes) -> Path:
    """Write a dropped file among the jobs of a root and return its path; the same content is kept once.

    Raises:
        OSError: It could not be written.
    """
    stem, ending = Path(name).stem, Path(name).suffix.lower()
    plain = re.sub("[^A-Za-z0-9._-]", "-", stem).lstrip("._-")[:60] or "rows"
    path = launch_folder(root) / _FOLDER / f"{plain}-{hashlib.sha256(content).hexdigest()[:8]}{ending}"
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.is_file() or path.read_bytes() != content:
        write_bytes(path, content)
    return path


def _near(folder: Path) -> Iterator[Path]:
    """Yield what a folder and the folders in it hold, without hidden ones; what cannot be read is left out."""
    inside = _inside(folder)
    below = (path for each in inside if each.is_dir() and not each.is_symlink() for path in _inside(each))
    yield from islice(chain(inside, below), _LOOKED_AT)


def _inside(folder: Path) -> list[Path]:
    try:
        return sorted(islice((path for path in folder.iterdir() if not path.name.startswith(".")), _LOOKED_AT))
    except OSError:
        return []


def _offer(folder: Path, path: Path, said: str) -> Offer:
    name = path.relative_to(folder) if path.is_relative_to(folder) else path
    return Offer(name=str(name), label=f"{name}, {said}")


def _length(path: Path) -> str:
    status = path.stat()
    if path.suffix.lower() != ".jsonl" or status.st_size > _COUNTED_BYTES:
        return size(status.st_size)
    return f"{count(_lines(path, status.st_size, status.st_mtime_ns))} rows, {size(status.st_size)}"


@lru_cache(maxsize=4 * _MOST)
def _lines(path: Path, _bytes: int, _mtime_ns: int) -> int:
    """Return the lines of a file that hold something; counted again only when the file has changed."""
    return sum(bool(line.strip()) for line in path.read_bytes().splitlines())
