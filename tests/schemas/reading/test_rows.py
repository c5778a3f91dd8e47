"""Files of rows: torn tails, blank lines, reading on where an earlier reading ended, many bad lines, and speed."""

import gc
import json
from pathlib import Path

import pytest
from effort import calls

from schemas.reading.rows import APPENDED, MOST_COUNTED, MOST_EXPLAINED
from schemas.validate import Rows, read_rows

CASES = Path(__file__).parents[2] / "cases" / "documents" / "valid"
ROW = {
    "step": 1,
    "tokens_seen": 2048,
    "loss": 6.5,
    "learning_rate": 0.001,
    "grad_norm": 1.25,
    "step_seconds": 0.125,
    "tokens_per_second": 16384.5,
    "device_memory_bytes": None,
    "time": "2026-10-11T12:34:56.123456+00:00",
}


def row(step: int) -> dict:
    return {**ROW, "step": step}


def line(step: int) -> bytes:
    return json.dumps(row(step)).encode() + b"\n"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "metrics.jsonl"


def read(path: Path, data: bytes, kind: str = "metric_row") -> Rows:
    path.write_bytes(data)
    return read_rows(path, kind)


def said(rows: Rows) -> list[tuple[str, int | None]]:
    return [(problem.code, problem.line) for problem in rows.problems]


def test_rows_come_in_order_as_they_are_written(path):
    rows = read(path, line(1) + line(2))
    assert rows == Rows(values=[row(1), row(2)], problems=(), torn_tail=False, bytes_read=len(line(1) + line(2)))
    assert list(rows.values[0]) == list(ROW)


def test_an_empty_file_has_no_rows_and_no_problem(path):
    assert read(path, b"") == Rows(values=[], problems=(), torn_tail=False, bytes_read=0)


@pytest.mark.parametrize("kind", APPENDED)
def test_wherever_a_file_is_cut_only_the_last_line_is_lost(path, kind):
    # A sign of several bytes, so that cuts fall inside it as well.
    first = (CASES / f"{kind}.plain.jsonl").read_bytes().splitlines(keepends=True)[0]
    lines = [first.replace(b"What", b"Wh\xc3\xa4t").replace(b"Run", b"R\xf0\x9f\x98\x80n")] * 3
    whole = b"".join(lines)
    start = len(lines[0] + lines[1])
    for cut in range(start, len(whole) + 1):
        rows = read(path, whole[:cut], kind)
        is_torn = start < cut < len(whole)
        assert rows.torn_tail is is_torn
        assert said(rows) == ([("TP130", 3)] if is_torn else [])
        complete = 3 if cut == len(whole) else 2
        assert len(rows.values) == complete
        assert rows.left_out == ()
        assert rows.bytes_read == len(b"".join(lines[:complete]))


def test_a_line_torn_anywhere_else_is_an_error(path):
    rows = read(path, line(1) + line(2)[:-50] + b"\n" + line(3))
    assert said(rows) == [("TP107", 2)]
    assert rows.values == [row(1), row(3)]
    assert not rows.torn_tail


def test_only_rows_that_runs_append_have_torn_tails(path):
    pair = b'{"prompt": "1 + 1?", "completion": "2"}'
    assert read(path, pair, "dataset_row").values == [{"prompt": "1 + 1?", "completion": "2"}]
    rows = read(path, pair + b"\n" + pair[:-4], "dataset_row")
    assert said(rows) == [("TP107", 2)]
    assert not rows.torn_tail
    item = b'{"id": "a", "prompt": "1 + 1?", "expected": "2"}'
    assert said(read(path, item, "eval_item")) == []


def test_blank_lines_are_skipped_with_a_warning_and_counted(path):
    rows = read(path, b"\n" + line(1) + b"  \r\n" + line(2) + line(2)[:-50] + b"\n" + line(3) + b"\n")
    assert said(rows) == [("TP131", 1), ("TP131", 3), ("TP107", 5), ("TP131", 7)]
    assert [rows.line_of(index) for index in range(3)] == [2, 4, 6]


def test_carriage_returns_are_no_problem(path):
    rows = read(path, (line(1) + line(2)).replace(b"\n", b"\r\n"))
    assert rows.values == [row(1), row(2)]
    assert rows.problems == ()


def test_many_bad_lines_are_explained_up_to_a_limit(path):
    rows = read(path, line(0) * (MOST_EXPLAINED + 2) + line(1))
    assert said(rows)[:-1] == [("TP125", number) for number in range(1, MOST_EXPLAINED + 1)]
    last = rows.problems[-1]
    assert (last.code, last.what) == ("TP132", "2 more lines of this file have problems.")
    assert rows.values == [row(1)]
    one_more = read(path, line(0) * (MOST_EXPLAINED + 1) + line(1))
    assert one_more.problems[-1].what == "1 more line of this file has problems."


def test_millions_of_bad_lines_are_not_all_looked_at(path):
    """They took minutes: each was explained, and its explanation thrown away."""
    few, many = (b"{}\n" * lines for lines in (MOST_EXPLAINED + MOST_COUNTED, 400_000))
    assert calls(lambda: read(path, many)) < 1.01 * calls(lambda: read(path, few))
    rows = read(path, line(1) + many + line(2))
    assert rows.problems[-1].what == "1,000 more lines of this file have problems; what follows them was not read."
    assert rows.values == [row(1)]


def test_many_blank_lines_are_named_up_to_a_limit(path):
    rows = read(path, line(1) + b"\n" * (MOST_EXPLAINED + 3) + line(2))
    assert said(rows) == [*(("TP131", number) for number in range(2, MOST_EXPLAINED + 2)), ("TP131", None)]
    assert rows.problems[-1].what == "3 more blank lines were skipped."
    assert rows.values == [row(1), row(2)]
    assert rows.line_of(1) == MOST_EXPLAINED + 5


def test_a_torn_tail_after_many_bad_lines_is_still_a_torn_tail(path):
    rows = read(path, line(0) * (MOST_EXPLAINED + 1) + line(1)[:30] + b"\n")
    assert [problem.code for problem in rows.problems[-2:]] == ["TP130", "TP132"]
    assert rows.problems[-1].what == "1 more line of this file has problems."
    assert rows.torn_tail


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda path: None, "The file does not exist."),
        (lambda path: path.mkdir(), "The path names a folder instead of a file, or a file instead of a folder."),
    ],
)
def test_a_file_that_cannot_be_read_is_a_problem(path, make, what):
    make(path)
    rows = read_rows(path, "metric_row")
    assert [(problem.code, problem.file, problem.what) for problem in rows.problems] == [("TP101", str(path), what)]
    assert rows.values == []


def test_another_encoding_is_one_problem_not_one_for_each_line(path):
    rows = read(path, (line(1) * 50).decode().encode("utf-16"))
    assert said(rows) == [("TP104", None)]


def test_the_cycle_collector_is_left_as_it_was(path):
    read(path, line(1))
    assert gc.isenabled()
    gc.disable()
    try:
        read(path, line(1))
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_metric_rows_are_read_without_a_call_for_each(path):
    def effort(rows: int) -> int:
        path.write_bytes(b"".join(line(step) for step in range(1, rows + 1)))
        assert len(read_rows(path, "metric_row").values) == rows
        return calls(lambda: read_rows(path, "metric_row"))

    # `benchmarks/runs.py` times them. Two texts of a single chunk: what is called for each row shows as a difference.
    assert effort(2000) - effort(1000) < 100
