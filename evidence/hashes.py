"""SHA-256 of files, strings and JSON values, each with one fixed byte form, and the chain that a run makes of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from json.encoder import encode_basestring
from pathlib import Path
from typing import Any, NamedTuple

CHUNK_BYTES = 2**18
"""Bytes of a file hashed at a time."""


def sha256_file(path: Path) -> str:
    """Return the hash of a file's bytes as 64 hexadecimal digits.

    Raises:
        OSError: The file cannot be read.
    """
    digest = hashlib.sha256()
    # `hashlib.file_digest` first clears a buffer, and a buffered file requests the memory of a whole chunk. For most
    # files of a run either takes as long as the hashing.
    with path.open("rb", buffering=0) as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def sha256_lines(strings: Iterable[str]) -> str:
    r"""Return the hash of strings in order, each written as a JSON string and a newline, in UTF-8.

    JSON keeps the pieces apart: `["a", "b"]` and `["a\nb"]` differ. For `["a"]` it is the hash of the bytes `"a"\n`.
    """
    lines = "".join(f"{encode_basestring(text)}\n" for text in strings)
    return hashlib.sha256(lines.encode("utf-8", "surrogatepass")).hexdigest()


def sha256_json(value: Any) -> str:
    """Return the hash of a JSON value written with sorted keys and no spaces, in UTF-8.

    For `{"b": 1, "a": "é"}` it is the hash of the bytes `{"a":"é","b":1}`.

    Raises:
        ValueError: The value holds a number that is not finite.
    """
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def sha256_manifest(manifest: dict[str, Any]) -> str:
    """Return the hash of a manifest without its artifact list, which the log states when the run is sealed.

    The artifact list is left out because it holds the hash of that log. So the manifest vouches for the log and the log
    for the manifest, and a change of one value in either shows.
    """
    return sha256_json({key: value for key, value in manifest.items() if key != "artifacts"})


class RowsSoFar(NamedTuple):
    """What an entry states of the rows before it."""

    rows: int
    sha256: str


class Chain:
    """The entries of one run, in the order in which it makes them, each holding the hash of the one before.

    So no entry can be changed, left out or put in afterwards without changing all that follow, and the last one's
    hash, the head, stands for the whole run.
    """

    def __init__(self, before: str | None = None) -> None:
        """Begin a chain.

        Args:
            before: link of the entry of another run from which this one goes on. None: it begins afresh.
        """
        self.entries: list[dict[str, Any]] = []
        self._before = before
        self._rows = 0
        self._lines = hashlib.sha256()

    def row(self, line: bytes) -> None:
        """Take a line that was written into metrics.jsonl, newline included."""
        self._rows += 1
        self._lines.update(line)

    def rows_so_far(self) -> RowsSoFar:
        """Return what an entry of now states of the rows."""
        return RowsSoFar(self._rows, self._lines.hexdigest())

    def entry(
        self,
        *,
        step: int,
        data_position: int,
        state_sha256: str,
        params_sha256: str | None = None,
        rows: RowsSoFar | None = None,
    ) -> dict[str, Any]:
        """Return the next entry, a line of chain.jsonl; its fields are described in the schema `chain_entry`.

        It is of the rows that there were when its state was taken, or of all that there are.
        """
        rows = rows or self.rows_so_far()
        entry = {
            "step": step,
            "data_position": data_position,
            "state_sha256": state_sha256,
            "params_sha256": params_sha256,
            "rows": rows.rows,
            "rows_sha256": rows.sha256,
            "previous": self.head,
        }
        self.entries.append(entry)
        return entry

    @property
    def head(self) -> str | None:
        """Link of the last entry; before the first, of that from which the run goes on."""
        return link_of(self.entries[-1]) if self.entries else self._before

    def document(self) -> dict[str, Any]:
        """Return the manifest's group `chain`. There is at least one entry."""
        return {"entries": len(self.entries), "head": self.head}


def link_of(entry: dict[str, Any]) -> str:
    """Return the hash of an entry, which the one after it holds as `previous`."""
    return sha256_json(entry)
