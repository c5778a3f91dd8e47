"""Encoded rows kept between runs, so that a run that is resumed does not encode them again.

An entry is named by all that decides it: the rows themselves, the tokenizer, the settings, and this program's own files
about data. It is written whole under another name and then renamed, and ends in the hash of everything before; one that
is damaged is encoded and written again.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from trainer.data.files.encoded import TokenFile
from trainer.recorder.cache_folder import folder, size_bytes

Counts = dict[str, int | bool]

FEWEST_ROWS = 2_000
"""Fewer are encoded again: they take half a second."""

VERSIONS = ("tokenizers", "transformers", "jinja2", "numpy")
"""Packages that decide what a row is encoded to."""

SEAL_BYTES = 32
LENGTH_BYTES = 8


def rows_key(rows: Sequence[dict[str, Any]], tokenizer: Any, settings: Mapping[str, Any]) -> str | None:
    """Return the name of what rows are encoded to; None: it is not kept.

    That is so for few rows, where nothing is to be kept, of a tokenizer that cannot be read whole, and of a chat
    template that may write the date.
    """
    backend, written = getattr(tokenizer, "backend_tokenizer", None), str(getattr(tokenizer, "chat_template", None))
    if len(rows) < FEWEST_ROWS or not size_bytes() or backend is None or "strftime" in written:
        return None
    digest = hashlib.sha256()
    for row in rows:
        digest.update(json.dumps(row, default=repr).encode())
    digest.update(backend.to_str().encode())
    # Where its files lie decides nothing: what they hold stands in the text of the backend.
    beside = {key: value for key, value in tokenizer.init_kwargs.items() if not key.endswith(("_file", "_path"))}
    told = [type(tokenizer).__qualname__, tokenizer.special_tokens_map, tokenizer.eos_token_id, written, beside]
    digest.update(json.dumps([told, settings, source()], sort_keys=True, default=str).encode())
    return digest.hexdigest()


@cache
def source() -> list[str]:
    """Return what encodes: the versions of packages, and a hash of this program's own files about data."""
    found, here = [], Path(__file__).parents[1]
    for package in VERSIONS:
        with suppress(PackageNotFoundError):
            found.append(f"{package} {version(package)}")
    digest = hashlib.sha256()
    for file in sorted(here.rglob("*.py")):
        digest.update(file.relative_to(here).as_posix().encode() + b"\0" + file.read_bytes())
    return [*found, digest.hexdigest()]


def keep_rows(key: str, rows: TokenFile, counts: Counts) -> None:
    """Keep encoded rows within the room that there is; a folder that cannot be written to keeps none."""
    columns = rows.columns
    described = {name: [str(each.dtype), len(each)] for name, each in columns.items()}
    header = json.dumps({"columns": described, "counts": counts}).encode()
    header += b" " * (-len(header) % LENGTH_BYTES)
    room = folder() / "rows"
    with suppress(OSError):
        if not remove_oldest(room, sum(each.nbytes for each in columns.values())):
            return
        room.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("wb", dir=room, suffix=".new", delete=False) as file:
            digest = hashlib.sha256()
            pieces: list[Any] = [len(header).to_bytes(LENGTH_BYTES, "little"), header, *columns.values()]
            for piece in pieces:
                digest.update(piece)
                file.write(piece)
            file.write(digest.digest())
        Path(file.name).replace(room / key)


def read_kept(key: str) -> tuple[TokenFile, Counts] | None:
    """Return the rows and counts that are kept under a key; None where none are, or others than were written."""
    path = folder() / "rows" / key
    try:
        if not is_whole(path):
            return None
        with path.open("rb") as file:
            size = int.from_bytes(file.read(LENGTH_BYTES), "little")
            header = json.loads(file.read(size))
        place, columns = LENGTH_BYTES + size, {}
        for name, (dtype, length) in header["columns"].items():
            shape, kind = (length,), np.dtype(dtype)
            columns[name] = np.memmap(path, kind, "r", place, shape) if length else np.zeros(0, kind)
            place += length * kind.itemsize
        path.touch()
    except OSError:
        return None
    return TokenFile.of_columns(columns), header["counts"]


def is_whole(path: Path) -> bool:
    """Return whether a file ends in the hash of what stands before."""
    digest, left = hashlib.sha256(), path.stat().st_size - SEAL_BYTES
    with path.open("rb") as file:
        while left > 0 and (piece := file.read(min(left, 1 << 20))):
            digest.update(piece)
            left -= len(piece)
        return left == 0 and file.read() == digest.digest()


def remove_oldest(room: Path, wanted: int) -> bool:
    """Remove entries, the longest unused first, until so many bytes have room; return whether they ever can."""
    entries = sorted(room.iterdir(), key=lambda each: -each.stat().st_mtime) if room.is_dir() else []
    taken = wanted
    for entry in entries:
        taken += entry.stat().st_size
        if taken > size_bytes() >= wanted:
            entry.unlink()
    return wanted <= size_bytes()
