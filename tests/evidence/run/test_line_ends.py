"""Which conversion of line ends a file went through is found block by block, wherever a block ends."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from synthetic import write_run

from evidence.hashes import CHUNK_BYTES
from evidence.rules.integrity import artifacts_match
from evidence.run import read_run
from evidence.writing import write_json


@pytest.mark.parametrize("before", range(CHUNK_BYTES - 2, CHUNK_BYTES + 2))
@pytest.mark.parametrize(("had", "has", "name"), [(b"\n", b"\r\n", "CRLF"), (b"\r\n", b"\n", "LF")])
def test_line_ends_are_found_where_blocks_end(tmp_path: Path, before: int, had: bytes, has: bytes, name: str) -> None:
    folder = write_run(tmp_path, "one")
    wrote = b"a" * before + had + b"b" + had
    (folder / "other.txt").write_bytes(wrote.replace(had, has))
    run = read_run(folder)
    assert run.manifest is not None
    artifact = {"path": "other.txt", "bytes": len(wrote), "sha256": hashlib.sha256(wrote).hexdigest(), "role": "other"}
    write_json(folder / "run_manifest.json", {**run.manifest, "artifacts": [artifact]})
    found = [problem.what for problem in artifacts_match(read_run(folder))]
    assert found == [f"other.txt matches its hash after {name} conversion."]
