"""Copies, clocks, files, dates, overlap: single rules find what they should, and accuse no honest run."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from synthetic import seal, write_rows, write_run

from evidence import layout
from evidence.grade import check_run
from evidence.hashes import sha256_file
from evidence.rules.across import Fingerprint, find_copies
from evidence.rules.files import is_placeholder
from evidence.run import read_run
from evidence.scores.reading import Scoring, accepted_answers

RUN = Fingerprint(folder=Path("runs/a"), run_id="a", metrics="times", measured="seconds", state="end")
MOVED = replace(RUN, folder=Path("runs/b"), run_id="b", metrics="other times")


def copies(*runs: Fingerprint) -> dict[str, list[tuple[str, str, str]]]:
    return {
        folder.name: [(each.code, each.severity, each.what) for each in problems]
        for folder, problems in find_copies(runs).items()
    }


@pytest.mark.parametrize(
    ("copy", "code", "severity", "what"),
    [
        (MOVED, "TP421", "error", "Every row of {} has the seconds and the loss of the same row in {}."),
        (replace(MOVED, measured="other seconds"), "TP422", "note", "{} ended in the same state as {}, bit for bit."),
    ],
    ids=["other times", "other times and seconds"],
)
def test_changed_copy(copy: Fingerprint, code: str, severity: str, what: str) -> None:
    assert copies(RUN, copy) == {
        "a": [(code, severity, what.format("a", "b"))],
        "b": [(code, severity, what.format("b", "a"))],
    }


def test_missing_values_are_not_shared() -> None:
    empty = Fingerprint(folder=Path("runs/c"), run_id=None, metrics=None)
    assert copies(RUN, replace(MOVED, measured=None, state=None), empty, replace(empty, folder=Path("runs/d"))) == {}


Row = dict[str, Any]


def moved(row: Row, key: str, seconds: float) -> None:
    row[key] = (datetime.fromisoformat(row[key]) + timedelta(seconds=seconds)).isoformat()


def rewritten(folder: Path, name: str, change: Callable[[int, Row], None]) -> None:
    rows = [json.loads(line) for line in (folder / name).read_text("utf-8").splitlines()]
    for number, row in enumerate(rows):
        change(number, row)
    write_rows(folder / name, rows)


def errors(folder: Path) -> set[str]:
    return {problem.code for problem in check_run(read_run(folder)).findings if problem.severity == "error"}


def set_back(folder: Path, seconds: float, *, has_clock: bool) -> None:
    """Change a run without evaluation as if the clock had been set back after its tenth step."""
    metrics = [json.loads(line) for line in (folder / layout.METRICS).read_text("utf-8").splitlines()]
    at = datetime.fromisoformat(metrics[9]["time"])

    def later(_: int, row: Row) -> None:
        if has_clock:
            row["clock_seconds"] = datetime.fromisoformat(row["time"]).timestamp() - at.timestamp() + 5000
        if datetime.fromisoformat(row["time"]) > at:
            moved(row, "time", -seconds)

    rewritten(folder, layout.METRICS, later)
    rewritten(folder, layout.LOG, later)
    manifest = json.loads((folder / layout.MANIFEST).read_text("utf-8"))
    moved(manifest, "finished_at", -seconds)
    (folder / layout.MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", "utf-8")
    seal(folder)


@pytest.mark.parametrize("seconds", [40, 3600])
@pytest.mark.parametrize("has_clock", [True, False], ids=["1.2", "1.0"])
def test_clock_set_back(tmp_path: Path, seconds: int, has_clock: bool) -> None:
    folder = write_run(tmp_path, "run", items=0)
    set_back(folder, seconds, has_clock=has_clock)
    report = check_run(read_run(folder))
    assert [each for each in report.findings if each.severity != "note"] == []
    assert report.grade.name == "measured"  # it has no evaluation


@pytest.mark.parametrize("place", [5, -1])
def test_edited_time(tmp_path: Path, place: int) -> None:
    folder = write_run(tmp_path, "run", items=0)
    rewritten(
        folder, layout.METRICS, lambda number, row: moved(row, "time", -600 * (number == (place if place > 0 else 19)))
    )
    seal(folder)
    assert "TP320" in errors(folder)


def test_edited_time_contradicts_clock_seconds(tmp_path: Path) -> None:
    folder = write_run(tmp_path, "run", items=0)
    set_back(folder, 0, has_clock=True)
    rewritten(folder, layout.METRICS, lambda number, row: moved(row, "time", 7200 * (number == 5)))
    seal(folder)
    assert errors(folder) == {"TP320"}


LFS_POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'a' * 64}\nsize 4480000\n"


def test_lfs_pointer_instead_of_a_file(tmp_path: Path) -> None:
    folder = write_run(tmp_path, "run")
    (folder / layout.PREDICTIONS).write_text(LFS_POINTER, "utf-8")
    report = check_run(read_run(folder))
    assert report.grade.name == "partial"
    [pointer] = [each for each in report.findings if each.code == "TP213"]
    assert pointer.what == "predictions.jsonl is a Git LFS pointer of 132 bytes, not the file itself."
    assert "git lfs pull" in pointer.next


def test_content_that_is_not_json_is_not_quoted(tmp_path: Path) -> None:
    folder = write_run(tmp_path, "run")
    (folder / layout.PLAN).write_text("root:$6$secret:19000\n", "utf-8")
    [found] = [each for each in check_run(read_run(folder)).findings if each.line == 1]
    assert "secret" not in found.what


def test_values_that_the_recorder_writes_are_required_since_version_1_1(tmp_path: Path) -> None:
    report = check_run(read_run(write_run(tmp_path, "run", manifest={"schema_version": "1.1"})))
    found = {each.what for each in report.findings if each.code == "TP525"}
    assert {"code lacks committed_at and source.", "run_manifest.json lacks effective."} <= found
    assert "Row 1 lacks padding_fraction." in found
    assert report.grade.name in {"measured", "contradictory"}
    # Fewer events are no way around the rule on them.
    assert "TP365" in {each.code for each in report.findings}


@pytest.mark.parametrize(
    "text",
    [
        *("<PENDING>", "< todo: the score>", "name: <Fill-in>", "<your model>", "TBD", "the loss is TODO"),
        *("FIXME: measure it", "X.XX", "XX.XXX %", "Paste your output here", "PASTE THE LOGS HERE"),
        "paſte outputs here",  # A long s is an s in other cases.
    ],
)
def test_placeholder(text: str) -> None:
    assert is_placeholder(text)


@pytest.mark.parametrize(
    "text", ["", "a < b", "<bos>", "tbd", "todo list", "X.X", "TBDX", "copy and paste", "<yours>", "outputs here"]
)
def test_text_that_only_resembles_a_placeholder(text: str) -> None:
    assert not is_placeholder(text)


HONEST = Path(__file__).parents[3] / "benchmarks" / "results" / "honest_runs.json"
NO_OVERLAP = {"rows_same": 0, "rows_near": 0, "items_same": 0, "items_near": 0, "items": []}


@pytest.mark.parametrize(
    ("spellings", "dataset", "code", "what"),
    [
        (["{} ", " {}", "  {}"], {}, "TP408", "spelled differently: item-0000, item-0001, item-0002."),
        (["{} ", " {}"], {"overlap": NO_OVERLAP}, "TP317", "2 training rows contain 2 items, 0 are near 0 others; the"),
        (["{} "], {"sha256": "1" * 64}, None, ""),
    ],
    ids=["older run, which counted equal prompts only", "fewer stated", "another file"],
)
def test_overlap_is_counted_again(tmp_path, monkeypatch, spellings, dataset, code, what):
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
    found = [each for each in check_run(read_run(run)).findings if each.code in ("TP408", "TP414", "TP317")]
    assert [each.code for each in found] == ([code] if code else [])
    assert all(what in each.what for each in found)


@pytest.mark.parametrize("days", [-173 * 365, 173 * 365])
def test_impossible_date(tmp_path: Path, days: int) -> None:
    started = datetime(2026, 11, 20, 12, tzinfo=UTC) + timedelta(days=days)
    run = write_run(tmp_path, "run", started=started)
    assert "TP442" in {each.code for each in check_run(read_run(run)).findings}


def test_no_real_run_of_the_sample_is_accused() -> None:
    """benchmarks/honest_runs.py trained the sample; its results have all codes that were found."""
    sample = json.loads(HONEST.read_text("utf-8"))
    assert sample["runs"] == len(sample["rows"]) >= 150
    accused = [row for row in sample["rows"] if any(code.startswith(("TP38", "TP43", "TP44")) for code in row["codes"])]
    assert accused == []


def test_a_baseline_without_an_evaluation_is_scored_as_the_log_states(tmp_path: Path) -> None:
    folder = write_run(tmp_path, "a")
    scoring = {"answer": "whole", "answer_regex": None, "compare": "exact", "tolerance": 1e-6, "version": 2}
    rows = [json.loads(line) for line in (folder / layout.BASELINE_PREDICTIONS).read_text().splitlines()]
    for row in rows:
        row |= Scoring(**scoring).verdict(row["output_text"], row["finish_reason"], accepted_answers(row), stop=None)
    log = [json.loads(line) for line in (folder / layout.LOG).read_text().splitlines()]
    log.insert(1, log[0] | {"event": "scoring", "message": "answers: whole, exact match", "fields": scoring})
    write_rows(folder / layout.BASELINE_PREDICTIONS, rows)
    write_rows(folder / layout.LOG, log)
    (folder / layout.PREDICTIONS).unlink()
    (folder / layout.EVAL_SUMMARY).unlink()
    assert "TP341" not in {problem.code for problem in check_run(read_run(folder)).findings}
    rows[0]["extracted_answer"] = "something else"
    write_rows(folder / layout.BASELINE_PREDICTIONS, rows)
    assert "TP341" in {problem.code for problem in check_run(read_run(folder)).findings}
