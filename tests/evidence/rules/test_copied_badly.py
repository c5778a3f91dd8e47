"""Folders that a copy spoiled say what to do, and accuse nobody: files of Git LFS not fetched, names in capitals."""

from __future__ import annotations

from pathlib import Path

from synthetic import write_run

from evidence import layout
from evidence.grade import check_run
from evidence.run import read_run

COMMITTED = Path(__file__).parents[2] / "cases" / "earlier" / "demo-smoke"
POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'a' * 64}\nsize 4480000\n"


def test_a_pointer_in_place_of_a_file_is_named(tmp_path: Path) -> None:
    folder = write_run(tmp_path, "run")
    (folder / layout.PREDICTIONS).write_text(POINTER, "utf-8")
    report = check_run(read_run(folder))
    assert report.grade.name == "partial"
    [pointer] = [each for each in report.findings if each.code == "TP213"]
    assert (pointer.what, pointer.next) == (
        "predictions.jsonl is a Git LFS pointer of 132 bytes, not the file itself.",
        "Fetch it with `git lfs pull`, and check again.",
    )
    [first, *_] = [each for each in report.findings if each.file.endswith(layout.PREDICTIONS) and each.line == 1]
    assert first.what == "This is not JSON: it is a Git LFS pointer in place of the file at column 1."


def test_nothing_of_a_file_that_is_not_json_is_quoted(tmp_path: Path) -> None:
    folder = write_run(tmp_path, "run")
    (folder / layout.PLAN).write_text("root:$6$secret:19000\n", "utf-8")
    [found] = [each for each in check_run(read_run(folder)).findings if each.line == 1]
    assert found.what == "This is not JSON: it does not begin as JSON does at column 1."
