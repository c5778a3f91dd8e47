from __future__ import annotations

from pathlib import Path

import pytest

from dashboard.shared import files
from dashboard.shared.files import read_log


def messages(path: Path) -> list[str]:
    return [record["message"] for record in read_log(path).records]


def test_an_unfinished_last_line_is_left_out_and_other_lines_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    assert read_log(path).records == ()
    path.write_text('{"message": "a"}\n{"mess')
    assert (messages(path), read_log(path).unread) == (["a"], 0)
    with path.open("a") as file:
        file.write('age": "b"}\nnot json\n[1]\n\n')
    assert (messages(path), read_log(path).unread) == (["a", "b"], 2)


@pytest.mark.parametrize("size", [50, 51, 52])
def test_of_a_long_log_the_last_whole_lines_are_read(tmp_path: Path, monkeypatch, size: int) -> None:
    monkeypatch.setattr(files, "TAIL_BYTES", size)
    path = tmp_path / "log.jsonl"
    path.write_text("".join(f'{{"message": "line {number}"}}\n' for number in range(9)))
    assert messages(path) == ["line 7", "line 8"]
    assert (read_log(path).is_cut, read_log(path).unread) == (True, 0)
