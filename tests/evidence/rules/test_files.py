"""Missing and damaged files, placeholders and left-out values get their code, and honest runs none."""

from __future__ import annotations

from pathlib import Path

import pytest
from synthetic import write_run

from evidence import layout
from evidence.grade import check_run
from evidence.rules.files import is_placeholder
from evidence.run import read_run

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


def test_values_that_version_1_0_does_not_have_are_not_required(tmp_path: Path) -> None:
    report = check_run(read_run(write_run(tmp_path, "run")))
    assert (report.grade.name, report.findings) == ("consistent", ())


@pytest.mark.parametrize(
    "text",
    [
        "<PENDING>",
        "< todo: the score>",
        "name: <Fill-in>",
        "<your model>",
        "TBD",
        "the loss is TODO",
        "FIXME: measure it",
        "X.XX",
        "XX.XXX %",
        "Paste your output here",
        "PASTE THE LOGS HERE",
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
