"""Files: rows with torn tails and bad lines, files that are too large, and arbitrary bytes."""

import json
import math
import os
from pathlib import Path

import numpy as np
import pytest
from changed_schema import changed_schema, with_row_field
from effort import calls
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.catalog import APPENDED, KINDS, ROWS, number_names
from schemas.reading import (
    LARGEST_DOCUMENT,
    LARGEST_ROWS,
    MAX_COUNTED,
    MAX_EXPLAINED,
    MAX_ROW_BYTES,
    MAX_VALUES,
    Columns,
    Rows,
    parse_json,
    parse_time,
    parse_yaml,
    read_rows,
)
from schemas.render import render_github, render_sarif, render_text
from schemas.validate import read_document

CASES = Path(__file__).parents[1] / "cases" / "documents"
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
    for data in (line(1) + line(2), (line(1) + line(2)).replace(b"\n", b"\r\n")):
        rows = read(path, data)
        assert rows == Rows(values=[row(1), row(2)], problems=(), torn_tail=False, bytes_read=len(data))
        assert list(rows.values[0]) == list(ROW)
    assert read(path, b"") == Rows(values=[], problems=(), torn_tail=False, bytes_read=0)


@pytest.mark.parametrize("kind", APPENDED)
def test_wherever_a_file_is_cut_only_the_last_line_is_lost(path, kind):
    # A sign of several bytes, so that cuts fall inside it as well.
    first = (CASES / "valid" / f"{kind}.plain.jsonl").read_bytes().splitlines(keepends=True)[0]
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
    assert said(rows) == [("TP107", 5), ("TP131", 1)]
    assert rows.problems[-1].what == "3 blank lines skipped."
    assert [rows.line_of(index) for index in range(3)] == [2, 4, 6]


def test_many_bad_lines_are_explained_up_to_a_limit(path):
    rows = read(path, line(0) * (MAX_EXPLAINED + 2) + line(1))
    assert said(rows)[:-1] == [("TP125", number) for number in range(1, MAX_EXPLAINED + 1)]
    last = rows.problems[-1]
    assert (last.code, last.what) == ("TP132", "2 more lines of this file have problems.")
    assert rows.values == [row(1)]
    torn = read(path, line(0) * (MAX_EXPLAINED + 1) + line(1)[:30] + b"\n")
    assert [problem.code for problem in torn.problems[-2:]] == ["TP130", "TP132"]
    assert (torn.problems[-1].what, torn.torn_tail) == ("1 more line of this file has problems.", True)


def test_millions_of_bad_lines_are_not_all_looked_at(path):
    """They took minutes: each was explained, and its explanation thrown away."""
    few, many = (b"{}\n" * lines for lines in (MAX_EXPLAINED + MAX_COUNTED, 400_000))
    assert calls(lambda: read(path, many)) < 2 * calls(lambda: read(path, few))
    rows = read(path, line(1) + many + line(2))
    assert rows.problems[-1].what == "1,000 more lines of this file have problems; what follows them was not read."
    assert rows.values == [row(1)]


@pytest.mark.parametrize(
    ("make", "what"),
    [(lambda path: None, "The file does not exist."), (lambda path: path.mkdir(), "The path is a folder, not a file.")],
)
def test_a_file_that_cannot_be_read_is_a_problem(path, make, what):
    make(path)
    rows = read_rows(path, "metric_row")
    assert [(problem.code, problem.file, problem.what) for problem in rows.problems] == [("TP101", str(path), what)]
    assert rows.values == []


def test_another_encoding_is_one_problem_not_one_for_each_line(path):
    rows = read(path, (line(1) * 50).decode().encode("utf-16"))
    assert said(rows) == [("TP104", None)]


@pytest.mark.parametrize(
    "changed",
    [
        *(f'"step": {value}' for value in ("0", "1.5", "true", '"\\ud800"', "[1, 2]", "9" * 309)),
        *(
            f'"step": 1{more}'
            for more in (', "step": 1', ', "st\\u0065p": 1', ', "more": 1', '}, {"step": 1', ",\n", "}\n{")
        ),
        '"step": [{}\n{}]}, 5, {"step": 1',
    ],
)
def test_a_wrong_line_among_thousands_is_named(path, changed):
    good = b"".join(line(step) for step in range(1, 401))
    rows = read(path, good + line(1).replace(b'"step": 1', changed.encode()) + good)
    assert {problem.line for problem in rows.problems} <= {401, 402}
    assert rows.problems
    assert list(rows.values) == [row(step) for step in range(1, 401)] * 2


@pytest.mark.parametrize("kind", ROWS)
@pytest.mark.parametrize("value", ["0", "true", "null", '"a"', "[1]"])
def test_a_row_that_is_not_an_object_is_named_with_its_line(path, kind: str, value: str):
    [problem] = read(path, f"{value}\n".encode(), kind).problems
    assert (problem.code, problem.line) == ("TP120", 1)


@pytest.mark.parametrize("literal", ["1e999", "NaN", "9" * 309])
def test_numbers_that_are_not_finite_are_refused_in_any_row(path, literal):
    assert [code for code, _ in said(read(path, line(1).replace(b"6.5", literal.encode()) + line(2)))] == ["TP110"]
    record = (CASES / "valid" / "log_record.plain.jsonl").read_text().splitlines()[0]
    fields = json.loads(record) | {"fields": {"a": "HERE"}}
    text = json.dumps(fields).replace('"HERE"', literal) + "\n"
    assert [code for code, _ in said(read(path, text.encode() * 2, "log_record"))] == ["TP110", "TP110"]


def test_columns_are_arrays_of_the_rows():
    rows = [
        ROW,
        ROW | {"time": "2026-10-11T13:34:56.123456+01:00", "loss": None},
        ROW | {"time": "2026-02-30T12:00:00Z", "loss": 3},
    ]
    columns = Columns(rows)
    at = parse_time(ROW["time"])
    assert at is not None
    np.testing.assert_array_equal(columns["seconds"], [at.timestamp(), at.timestamp(), math.nan])
    np.testing.assert_array_equal(columns["loss"], [6.5, math.nan, 3])
    with pytest.raises(KeyError):
        columns["nothing"]


def test_an_optional_field_of_the_schema_is_read_and_checked(path):
    node = {"title": "KL", "type": "number", "minimum": 0, "maximum": 1e9, "description": "Divergence."}
    with changed_schema("metric_row", with_row_field("token_entropy", node)):
        rows = read(path, b"".join(json.dumps(row(1) | {"token_entropy": x}).encode() + b"\n" for x in (0.25, -1)))
        np.testing.assert_array_equal(Columns(rows.values)["token_entropy"], [0.25])
        assert said(rows) == [("TP125", 2)]
        assert number_names()[-1] == "token_entropy"
    assert "token_entropy" not in number_names()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kind", "content", "size", "what"),
    [
        ("plan.json", "plan", b"", LARGEST_DOCUMENT + 1, "The document has 67,108,865 bytes"),
        ("plan.json", "plan", b"[" + b"0," * MAX_VALUES + b"0]", None, "The document has about 4,000,001 values"),
        ("metrics.jsonl", "metric_row", b"", LARGEST_ROWS + 1, "The file has 536,870,913 bytes"),
    ],
)
def test_of_a_file_that_is_too_large_nothing_is_read(tmp_path, name, kind, content, size, what):
    (tmp_path / name).write_bytes(content)
    if size:
        os.truncate(tmp_path / name, size)
    found = (read_rows if kind in ROWS else read_document)(tmp_path / name, kind)
    assert [(one.code, one.what) for one in found.problems] == [("TP133", f"{what}, more than are read.")]


@pytest.mark.slow
@pytest.mark.parametrize("end", [b"\n", b""])
def test_a_row_that_is_too_long_is_left_out_and_those_around_it_are_read(path, end):
    good = (CASES / "valid" / "log_record.plain.jsonl").read_bytes().splitlines(keepends=True)[0]
    long = b"[" + b"0," * (MAX_ROW_BYTES // 2) + b"0]\n"
    rows = read(path, good + long + good + b"x" * (MAX_ROW_BYTES + 1) + end, "log_record")
    assert (len(rows.values), rows.left_out) == (2, (2, 4))
    assert said(rows) == [("TP133", 2), ("TP133", 4)]


FILES = [path.read_bytes() for path in sorted(CASES.glob("*/*[!t]"))]
PIECES = [b"{", b"}", b"[", b"]", b'"', b":", b",", b"\\", b"\\u", b"\\ud800"]
PIECES += [b"\n", b"\r", b"\t", b" ", b"\x00", b"\xff"]
PIECES += [b"\xef\xbb\xbf", b"\xff\xfe", b"1e999", b"NaN", b"-", b"0", b"9" * 400, b"null", b"true", b"#", b"&a", b"*a"]
PIECES += [b"!!", b"|", b">", b"? ", b"- ", b"---", b"...", b"%", b"'", b"<<", b"~", b".inf", b"\xe2\x80\xa8", b"a"]


@st.composite
def damaged_cases(draw: st.DrawFn) -> bytes:
    """Draw a case file with a piece cut out and another put in, a few times."""
    data = draw(st.sampled_from(FILES))
    for _ in range(draw(st.integers(1, 4))):
        start, length = draw(st.integers(0, len(data))), draw(st.integers(0, 20))
        data = data[:start] + draw(st.sampled_from(PIECES) | st.binary(max_size=4)) + data[start + length :]
    return data


BYTES = st.binary(max_size=60) | st.lists(st.sampled_from(PIECES), max_size=20).map(b"".join) | damaged_cases()


def say(problems) -> None:
    for render in (render_text, render_github, render_sarif):
        render(problems).encode("utf-8")


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(BYTES)
def test_parsing_never_raises(data):
    for parse in (parse_json, parse_yaml):
        parsed = parse(data, file="x")
        assert parsed.is_read or parsed.problems
        say(parsed.problems)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_reading_a_file_never_raises(kind, tmp_path):
    path = tmp_path / "x"

    @settings(max_examples=80, deadline=None)
    @given(BYTES)
    def check(data):
        path.write_bytes(data)
        if kind in ROWS:
            rows = read_rows(path, kind)
            assert len(rows.values) + len(rows.left_out) <= data.count(b"\n") + 1
            assert rows.bytes_read <= len(data)
            say(rows.problems)
        else:
            document = read_document(path, kind)
            assert document.problems or document.value is not None
            say(document.problems)

    check()
