"""Blank lines, empty files and duplicate ids."""

from collections.abc import Callable
from pathlib import Path

import pytest

from schemas.problems import ProblemError
from schemas.render import as_text
from trainer.data.rows import read_dataset, read_eval_set

PAIR = '{"prompt": "a", "completion": "b"}\n'


def refusal(reader: Callable, path: Path, text: str) -> str:
    path.write_text(text)
    with pytest.raises(ProblemError) as caught:
        reader(str(path))
    assert caught.value.exit_code == 2
    return as_text(caught.value.problems)


def test_blank_lines_are_skipped_with_a_warning(tmp_path: Path):
    path = tmp_path / "rows.jsonl"
    path.write_text(PAIR + "\n" + PAIR + "\n")
    read = read_dataset(str(path))
    assert len(read.rows) == 2
    assert list(read.lines) == [1, 3]
    assert as_text(read.warnings) == "".join(
        f"warning TP131: {path} (line {line}): The line is blank and was skipped.\n"
        "  Next: Delete it; each line of a JSONL file holds one object.\n"
        for line in (2, 4)
    )


def test_file_of_blank_lines_is_refused(tmp_path: Path):
    path = tmp_path / "rows.jsonl"
    assert refusal(read_dataset, path, "\n\n") == (
        f"error TP011: {path}: The dataset has no rows.\n"
        "  Expected: at least one line of JSON.\n"
        "  Next: Write one row per line; schemas/documents/v1 describes the shapes.\n"
    )


def test_duplicate_id_is_refused_with_both_lines(tmp_path: Path):
    path = tmp_path / "items.jsonl"
    item = '{"id": "a", "prompt": "x", "expected": "y"}\n'
    assert refusal(read_eval_set, path, "\n" + item + "\n" + item) == (
        f"error TP012: {path} at /id (line 4): The id 'a' is already used in line 2.\n"
        "  Expected: an id that no other item has.\n"
        "  Next: Give each item its own id.\n"
    )
