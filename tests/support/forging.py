"""Forge runs and evaluations: change what they state, then make chain, result, scores, log and hashes fit again."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import synthetic
from synthetic import write_document

from evidence import layout
from evidence.hashes import Chain, sha256_file, sha256_manifest
from evidence.scores.reading import Scoring, accepted_answers
from evidence.scores.recompute import compute_result, compute_scores

Row = dict[str, Any]


def read_rows(folder: Path, name: str = layout.METRICS) -> list[Row]:
    return [json.loads(line) for line in (folder / name).read_text("utf-8").splitlines()]


def write_rows(folder: Path, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
    synthetic.write_rows(folder / name, [dict(row) for row in rows])


def read_manifest(folder: Path) -> Row:
    manifest: Row = json.loads((folder / layout.MANIFEST).read_text("utf-8"))
    return manifest


def forged(
    folder: Path,
    rows: Sequence[Mapping[str, Any]] | None = None,
    states: Mapping[int, str] | None = None,
    params: Mapping[int, str] | None = None,
    manifest: Mapping[str, Mapping[str, Any]] | None = None,
) -> Path:
    """Change a finished run with a chain, make everything fit, and return the folder.

    Args:
        folder: Run folder.
        rows: New rows of metrics.jsonl.
        states: New hashes of states in the chain, by step.
        params: New hashes of parameters in the chain, by step.
        manifest: New values of groups of the manifest.
    """
    if rows is not None:
        write_rows(folder, layout.METRICS, rows)
    lines = (folder / layout.METRICS).read_bytes().splitlines(keepends=True)
    chain, done = Chain(), 0
    for entry in read_rows(folder, layout.CHAIN):
        for line in lines[done : entry["rows"]]:
            chain.row(line)
        done, step = entry["rows"], entry["step"]
        chain.entry(
            step=step,
            data_position=entry["data_position"],
            state_sha256=(states or {}).get(step, entry["state_sha256"]),
            params_sha256=(params or {}).get(step, entry["params_sha256"]),
        )
    write_rows(folder, layout.CHAIN, chain.entries)
    document = read_manifest(folder)
    document["result"] |= compute_result(read_rows(folder))
    document["chain"] = chain.document()
    for group, values in (manifest or {}).items():
        document[group] |= values
    return seal_manifest(folder, document)


def right_answer(row: Row) -> Row:
    """Return a row with the right answer, as a forger without a model writes it."""
    text = f"<reasoning>It is {row['expected']}.</reasoning>\n<answer>{row['expected']}</answer>"
    plain = {key: value for key, value in row.items() if key not in ("output_token_ids", "fingerprint")}
    return answered(plain | {"output_tokens": 8, "finish_reason": "stop"}, text)


def answered(row: Row, text: str) -> Row:
    verdict = Scoring().verdict(text, row["finish_reason"], accepted_answers(row))
    return row | {"output_text": text} | {key: value for key, value in verdict.items() if key in row}


def forge_answers(folder: Path, change: Callable[[int, Row], Row], *, params_sha256: str | None = None) -> None:
    """Change the answers of a run, given number and row, and make summary, log, manifest and hashes fit.

    Args:
        folder: Run folder.
        change: Returns the new row.
        params_sha256: Hash to state for the evaluated parameters, or None to keep it.
    """
    rows = [change(number, row) for number, row in enumerate(read_rows(folder, layout.PREDICTIONS))]
    write_rows(folder, layout.PREDICTIONS, rows)
    summary = json.loads((folder / layout.EVAL_SUMMARY).read_text())
    summary |= compute_scores(rows)
    summary["predictions"] |= {"rows": len(rows), "sha256": sha256_file(folder / layout.PREDICTIONS)}
    summary["checkpoint"]["params_sha256"] = params_sha256 or summary["checkpoint"]["params_sha256"]
    write_document(folder / layout.EVAL_SUMMARY, summary)
    log = read_rows(folder, layout.LOG)
    for record in log:
        if record["event"] == "evaluated":
            record["fields"] |= {"metrics": summary["metrics"], "params_sha256": summary["checkpoint"]["params_sha256"]}
    write_rows(folder, layout.LOG, log)
    seal_manifest(folder, read_manifest(folder))


def seal_manifest(folder: Path, manifest: Row) -> Path:
    """Write a manifest, its hash in the log, and the hashes of all files."""
    log = read_rows(folder, layout.LOG)
    for record in log:
        if record["event"] == "run_sealed":
            record["fields"]["manifest_sha256"] = sha256_manifest(manifest)
    write_rows(folder, layout.LOG, log)
    for artifact in manifest["artifacts"]:
        path = folder / artifact["path"]
        artifact |= {"bytes": path.stat().st_size, "sha256": sha256_file(path)}
    write_document(folder / layout.MANIFEST, manifest)
    return folder
