"""SHA-256 of files, of lists of strings and of JSON values, each with one fixed byte form."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from json.encoder import encode_basestring
from pathlib import Path
from typing import Any

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
