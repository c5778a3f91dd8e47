from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from dashboard.shared import files
from dashboard.shared.files import Tail, read_log


def row(step: int, **changes: object) -> str:
    values = {"step": step, "loss": 5.0 / step, "time": f"2026-11-20T12:00:{step:02d}+00:00"}
    return json.dumps(values | changes) + "\n"


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "rows.jsonl"


def test_only_new_lines_are_read_an_unfinished_one_waits_and_a_series_does_not_change(path: Path) -> None:
    path.write_text(row(1, time=None) + row(2)[:20])
    tail = Tail(path)
    first = tail.series()
    assert tail.series() is first
    append(path, row(2)[20:] + row(3))
    assert tail.series().columns["step"].tolist() == [1, 2, 3]
    assert first.columns["step"].tolist() == [1]
    assert np.isnan(tail.series().columns["seconds"][0])  # Its row states no time.
    assert tail.series().columns["seconds"][1:].tolist() == [0, 1]
    with pytest.raises(ValueError, match="read-only"):
        first.columns["loss"][0] = 0.0


def test_a_file_that_was_replaced_cut_or_removed_is_read_afresh(path: Path) -> None:
    path.write_text(row(1) + row(2) + row(3))
    tail = Tail(path)
    assert tail.series().rows == 3
    path.write_text(row(7))
    assert tail.series().columns["step"].tolist() == [7]
    other = path.with_name("new")
    other.write_text(row(8) + row(9))
    other.replace(path)
    assert tail.series().columns["step"].tolist() == [8, 9]
    path.unlink()
    found = tail.series()
    assert (found.rows, found.unread, found.last("loss"), found.has("loss")) == (0, 0, None, False)


def test_lines_that_are_no_rows_are_counted_and_null_is_a_gap(path: Path) -> None:
    bad = b"\xff\xfe\nnot json\n[]\n\n" + b'{"step": "3"}\n{"step": true}\n{}\n'
    path.write_bytes(row(1).encode() + bad + row(2, loss=None).encode())
    found = Tail(path).series()
    assert (found.columns["step"].tolist(), found.unread) == ([1, 2], 6)
    assert np.isnan(found.columns["loss"][1])
    assert found.last("loss") is None


@pytest.mark.parametrize("size", [999, 1000, 1001, 2000, 2001])
def test_lines_that_are_too_long_are_skipped_and_counted_however_they_grow(path: Path, monkeypatch, size: int) -> None:
    monkeypatch.setattr(files, "MAX_LINE_BYTES", 1000)
    path.write_text(row(1) + "x" * size)
    tail = Tail(path)
    assert (tail.series().rows, tail.series().unread) == (1, size >= 1000)
    append(path, "x")
    tail.series()
    append(path, "x\nnot json\n" + row(2))
    assert (tail.series().columns["step"].tolist(), tail.series().unread) == ([1, 2], 2)


def messages(path: Path) -> list[str]:
    return [record["message"] for record in read_log(path).records]


def test_of_a_log_an_unfinished_last_line_is_left_out_and_other_lines_are_counted(path: Path) -> None:
    assert read_log(path).records == ()
    path.write_text('{"message": "a"}\n{"mess')
    assert (messages(path), read_log(path).unread) == (["a"], 0)
    append(path, 'age": "b"}\nnot json\n[1]\n\n')
    assert (messages(path), read_log(path).unread) == (["a", "b"], 2)


@pytest.mark.parametrize("size", [50, 51, 52])
def test_of_a_long_log_the_last_whole_lines_are_read(path: Path, monkeypatch, size: int) -> None:
    monkeypatch.setattr(files, "TAIL_BYTES", size)
    path.write_text("".join(f'{{"message": "line {number}"}}\n' for number in range(9)))
    assert messages(path) == ["line 7", "line 8"]
    assert (read_log(path).is_cut, read_log(path).unread) == (True, 0)
