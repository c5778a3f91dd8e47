"""Overlap of training rows and evaluation is counted again; impossible dates are found; no real run is accused."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from synthetic import write_run

from evidence import layout
from evidence.grade import find_problems
from evidence.hashes import sha256_file
from evidence.run import read_run

HONEST = Path(__file__).parents[3] / "benchmarks" / "results" / "honest_runs.json"
NO_OVERLAP = {"rows_same": 0, "rows_near": 0, "items_same": 0, "items_near": 0, "items": []}


@pytest.mark.parametrize(
    ("spellings", "dataset", "code", "what"),
    [
        (
            ["{} ", " {}", "  {}"],
            {},
            "TP408",
            "spelled differently: item-0000, item-0001, item-0002.",
        ),
        (
            ["{} ", " {}"],
            {"overlap": NO_OVERLAP},
            "TP317",
            "2 training rows contain 2 items, 0 are near 0 others; the manifest states: 0 training rows",
        ),
        (["{} "], {"sha256": "1" * 64}, None, None),
    ],
    ids=["older run, which counted equal prompts only", "fewer stated", "another file"],
)
def test_overlap_is_counted_again(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    spellings: list[str],
    dataset: dict[str, Any],
    code: str | None,
    what: str | None,
) -> None:
    monkeypatch.chdir(tmp_path)
    first = write_run(tmp_path, "first")
    items = [json.loads(line) for line in (first / layout.PREDICTIONS).read_text("utf-8").splitlines()]
    rows = [
        {"prompt": spelling.format(item["prompt"]), "completion": item["expected"]}
        for spelling, item in zip(spellings, items, strict=False)
    ]
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    stated = {"name": "rows.jsonl", "sha256": sha256_file(file), "rows": len(rows)} | dataset
    config = {"data": {"dataset": "somewhere/rows.jsonl"}}
    run = write_run(Path(), "run", manifest={"dataset": stated}, config=config)
    file.rename(run / "rows.jsonl")
    found = [each for each in find_problems(read_run(run)) if each.code in ("TP408", "TP414", "TP317")]
    assert [each.code for each in found] == ([code] if code else [])
    assert what is None or what in found[0].what


@pytest.mark.parametrize("days", [-173 * 365, 173 * 365])
def test_impossible_date(tmp_path: Path, days: int) -> None:
    started = datetime(2026, 11, 20, 12, tzinfo=UTC) + timedelta(days=days)
    run = write_run(tmp_path, "run", started=started)
    assert "TP442" in {each.code for each in find_problems(read_run(run))}


def test_no_real_run_of_the_sample_is_accused() -> None:
    """benchmarks/honest_runs.py trained the sample; its results have all codes that were found."""
    sample = json.loads(HONEST.read_text("utf-8"))
    assert sample["runs"] == len(sample["rows"]) >= 150
    accused = [row for row in sample["rows"] if any(code.startswith(("TP38", "TP43", "TP44")) for code in row["codes"])]
    assert accused == []
