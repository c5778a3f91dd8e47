"""What a careful forger does: changes what a run states, then makes chain, result, log and every hash fit again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evidence import layout
from evidence.hashes import Chain, sha256_file, sha256_manifest
from evidence.scores.recompute import result_of
from evidence.writing import write_json


def rows_of(folder: Path, name: str = layout.METRICS) -> list[dict[str, Any]]:
    """Return the rows of one of a run's files."""
    return [json.loads(line) for line in (folder / name).read_text("utf-8").splitlines()]


def write_rows(folder: Path, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write them."""
    (folder / name).write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")


def manifest_of(folder: Path) -> dict[str, Any]:
    """Return a run's manifest."""
    manifest: dict[str, Any] = json.loads((folder / layout.MANIFEST).read_text("utf-8"))
    return manifest


def forged(
    folder: Path,
    rows: Sequence[Mapping[str, Any]] | None = None,
    states: Mapping[int, str] | None = None,
    params: Mapping[int, str] | None = None,
    manifest: Mapping[str, Mapping[str, Any]] | None = None,
) -> Path:
    """Change a run folder and make everything fit, so that no rule has anything to say; return the folder.

    Args:
        folder: of a finished run with a chain.
        rows: in place of those of metrics.jsonl.
        states: hashes of states by step, in place of the chain's.
        params: hashes of all parameters by step.
        manifest: values of the manifest's groups to change.
    """
    if rows is not None:
        write_rows(folder, layout.METRICS, rows)
    document = manifest_of(folder)
    entries = rows_of(folder, layout.CHAIN)
    lines = (folder / layout.METRICS).read_bytes().splitlines(keepends=True)
    chain, taken = Chain(), 0
    for entry in entries:
        for line in lines[taken : entry["rows"]]:
            chain.row(line)
        taken, step = entry["rows"], entry["step"]
        chain.entry(
            step=step,
            data_position=entry["data_position"],
            state_sha256=(states or {}).get(step, entry["state_sha256"]),
            params_sha256=(params or {}).get(step, entry["params_sha256"]),
        )
    write_rows(folder, layout.CHAIN, chain.entries)
    document["result"] |= result_of(rows_of(folder))
    document["chain"] = chain.document()
    for group, values in (manifest or {}).items():
        document[group] |= values
    log = rows_of(folder, layout.LOG)
    for record in log:
        if record["event"] == "run_sealed":
            record["fields"]["manifest_sha256"] = sha256_manifest(document)
    write_rows(folder, layout.LOG, log)
    for artifact in document["artifacts"]:
        path = folder / artifact["path"]
        artifact |= {"bytes": path.stat().st_size, "sha256": sha256_file(path)}
    write_json(folder / layout.MANIFEST, document)
    return folder
