"""Folders that a copy spoiled say what to do, and accuse nobody: files of Git LFS not fetched, names in capitals."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from synthetic import write_run

from evidence.judge.judgement import report_of
from evidence.records.ours import read_run
from evidence.run import layout

COMMITTED = Path(__file__).parents[2] / "cases" / "earlier" / "demo-smoke"
POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'a' * 64}\nsize 4480000\n"


def test_a_pointer_in_place_of_a_file_is_named(tmp_path: Path) -> None:
    folder = write_run(tmp_path, "run")
    (folder / layout.PREDICTIONS).write_text(POINTER, "utf-8")
    report = report_of(read_run(folder))
    assert report.grade.name == "partial"
    [pointer] = [each for each in report.findings if each.code == "TP213"]
    assert (pointer.what, pointer.next) == (
        "predictions.jsonl is a Git LFS pointer of 132 bytes, not the file itself.",
        "Fetch it with `git lfs pull`, and check again.",
    )
    [first, *_] = [each for each in report.findings if each.file.endswith(layout.PREDICTIONS) and each.line == 1]
    assert first.what == "This is not JSON: it is a Git LFS pointer, not the file itself at column 1."


def test_nothing_of_a_file_that_is_not_json_is_quoted(tmp_path: Path) -> None:
    folder = write_run(tmp_path, "run")
    (folder / layout.PLAN).write_text("root:$6$secret:19000\n", "utf-8")
    [found] = [each for each in report_of(read_run(folder)).findings if each.line == 1]
    assert found.what == "This is not JSON: it does not begin like JSON at column 1."


@pytest.mark.parametrize("name", ["RUN_MANIFEST.JSON", "Run_Manifest.Json"])
def test_names_in_capitals_are_read_like_any_other(tmp_path: Path, name: str) -> None:
    plain = report_of(read_run(shutil.copytree(COMMITTED, tmp_path / "small")))
    folder = shutil.copytree(COMMITTED, tmp_path / "capitals")
    for file in sorted(folder.iterdir()):
        file.rename(file.with_name(file.name.upper() if name.isupper() else file.name.title()))
    assert (folder / name).is_file()
    report = report_of(read_run(folder))
    assert (report.grade.name, report.grade.reasons) == (plain.grade.name, plain.grade.reasons)
    [said] = [each for each in report.findings if each.code == "TP214"]
    assert said.severity == "note"
    assert [each.code for each in report.findings if each is not said] == [each.code for each in plain.findings]


def test_what_is_false_in_capitals_is_found_and_named_by_its_file(tmp_path: Path) -> None:
    folder = shutil.copytree(COMMITTED, tmp_path / "run")
    for file in sorted(folder.iterdir()):
        file.rename(file.with_name(file.name.upper()))
    rows = (folder / "METRICS.JSONL").read_text("utf-8")
    (folder / "METRICS.JSONL").write_text(rows.replace('"loss": 6.', '"loss": 5.', 1), "utf-8")
    report = report_of(read_run(folder))
    assert report.grade.name == "contradictory"
    assert str(folder / "METRICS.JSONL") in {each.file for each in report.findings if each.severity == "error"}
