"""Hashes against the bytes they are defined by, and against the coreutils' sha256sum."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import pytest

from evidence.hashes import sha256_file, sha256_json, sha256_lines


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def test_lines_are_json_strings_with_newlines() -> None:
    assert sha256_lines(["a", 'b"\n', "é"]) == sha256('"a"\n"b\\"\\n"\n"é"\n')
    assert sha256_lines([]) == sha256("")


def test_pieces_cannot_be_moved_between_lines() -> None:
    assert sha256_lines(["a", "b"]) != sha256_lines(["a\nb"])
    assert sha256_lines(["ab", ""]) != sha256_lines(["a", "b"])


def test_json_is_sorted_and_dense() -> None:
    assert sha256_json({"b": [1, 2.5, None], "a": "é"}) == sha256('{"a":"é","b":[1,2.5,null]}')
    with pytest.raises(ValueError, match="Out of range float values"):
        sha256_json({"a": float("nan")})


def test_file_is_hashed_as_sha256sum_does(tmp_path: Path) -> None:
    file = tmp_path / "bytes"
    file.write_bytes(bytes(range(256)) * 5000)
    said = subprocess.run(["sha256sum", str(file)], capture_output=True, text=True, check=True).stdout
    assert sha256_file(file) == said.split()[0]
