"""Forging a run's evaluation: its answers rewritten, and everything that follows from them computed again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from synthetic import write_document, write_rows

from evidence import layout
from evidence.hashes import sha256_file, sha256_manifest
from evidence.scores.reading import Scoring, accepted_of
from evidence.scores.recompute import scores_of

Row = dict[str, Any]


def right_answer(row: Row) -> Row:
    """Return a row whose answer is the right one, as a forger writes it who has no model that says so."""
    text = f"<reasoning>It is {row['expected']}.</reasoning>\n<answer>{row['expected']}</answer>"
    plain = {key: value for key, value in row.items() if key not in ("output_token_ids", "fingerprint")}
    return answered(plain | {"output_tokens": 8, "finish_reason": "stop"}, text)


def answered(row: Row, text: str) -> Row:
    """Return a row with another text, scored as that text is."""
    verdict = Scoring().verdict(text, row["finish_reason"], accepted_of(row))
    return row | {"output_text": text} | {key: value for key, value in verdict.items() if key in row}


def forge_answers(folder: Path, change: Callable[[int, Row], Row], *, params_sha256: str | None = None) -> None:
    """Rewrite the answers of a run; summary, log, manifest and hashes say the same afterwards.

    Args:
        folder: of the run.
        change: returns the row to write in place of each, given its number and the row.
        params_sha256: stated as the hash of the parameters that answered. None: as it was.
    """
    rows = [change(number, row) for number, row in enumerate(read(folder / layout.PREDICTIONS))]
    write_rows(folder / layout.PREDICTIONS, rows)
    summary = json.loads((folder / layout.EVAL_SUMMARY).read_text())
    summary |= scores_of(rows)
    summary["predictions"] |= {"rows": len(rows), "sha256": sha256_file(folder / layout.PREDICTIONS)}
    summary["checkpoint"]["params_sha256"] = params_sha256 or summary["checkpoint"]["params_sha256"]
    write_document(folder / layout.EVAL_SUMMARY, summary)
    log = read(folder / layout.LOG)
    manifest = json.loads((folder / layout.MANIFEST).read_text())
    for record in log:
        if record["event"] == "evaluated":
            record["fields"]["metrics"] = summary["metrics"]
            record["fields"]["params_sha256"] = summary["checkpoint"]["params_sha256"]
        if record["event"] == "run_sealed":
            record["fields"]["manifest_sha256"] = sha256_manifest(manifest)
    write_rows(folder / layout.LOG, log)
    for artifact in manifest["artifacts"]:
        path = folder / artifact["path"]
        artifact |= {"bytes": path.stat().st_size, "sha256": sha256_file(path)}
    write_document(folder / layout.MANIFEST, manifest)


def read(path: Path) -> list[Row]:
    """Return the rows of a JSONL file."""
    return [json.loads(line) for line in path.read_text().splitlines()]
