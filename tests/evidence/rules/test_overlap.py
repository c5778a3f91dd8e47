"""What check says of a run's rows, counted again from a file of rows that has the stated hash."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from synthetic import write_run

from evidence.judge.judgement import report_of
from evidence.records.ours import read_run
from evidence.run import layout
from evidence.run.hashes import sha256_file
from schemas.render import as_text

FIX = (
    "  A score on questions that were trained on does not measure what the model can do.\n"
    "  Next: Remove these rows from the training data and run again, or evaluate on another set.\n"
)


def findings(
    tmp_path: Path, rewritten: list[str], monkeypatch: pytest.MonkeyPatch, *, beside: bool = False, **dataset: Any
) -> tuple[str, str]:
    """Return grade and findings of a run whose rows ask its own questions in other spelling."""
    monkeypatch.chdir(tmp_path)
    first = write_run(tmp_path, "first")
    items = [json.loads(line) for line in (first / layout.PREDICTIONS).read_text("utf-8").splitlines()]
    rows = [
        {"prompt": spelling.format(item["prompt"]), "completion": item["expected"]}
        for spelling, item in zip(rewritten, items, strict=False)
    ]
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    stated = {"name": "rows.jsonl", "sha256": sha256_file(file), "rows": len(rows)} | dataset
    config = {"data": {"dataset": "somewhere/rows.jsonl" if beside else "rows.jsonl"}}
    run = write_run(Path(), "run", manifest={"dataset": stated}, config=config)
    if beside:
        file.rename(run / "rows.jsonl")
    report = report_of(read_run(run))
    seen = [each for each in report.findings if each.code in ("TP408", "TP414", "TP317")]
    return report.grade.name, as_text(seen)


def test_rows_that_ask_the_items_in_other_spelling_are_found_in_an_older_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = (
        "error TP408: run/run_manifest.json at /dataset/overlap_with_eval (line 65): "
        "3 training rows ask, spelled in any way, what the evaluation asks: item-0000, item-0001, item-0002.\n"
    )
    assert findings(tmp_path, ["{} ", " {}", "  {}"], monkeypatch)[1] == said + FIX


def test_a_run_that_counted_so_and_states_less_contradicts_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing = {"rows_same": 0, "rows_near": 0, "items_same": 0, "items_near": 0, "items": []}
    grade, said = findings(tmp_path, ["{} ", " {}"], monkeypatch, overlap=nothing, beside=True)
    assert grade == "contradictory"
    assert said.startswith(
        "error TP317: run/run_manifest.json at /dataset/overlap (line 68): 2 training rows ask 2 items, "
        "0 more are near 0 others; the manifest states: 0 training rows ask 0 items, 0 more are near 0 others.\n"
    )


def test_a_file_of_other_bytes_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert findings(tmp_path, ["{} "], monkeypatch, sha256="1" * 64)[1] == ""
