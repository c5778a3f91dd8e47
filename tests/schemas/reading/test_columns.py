"""The table of metric rows against the reader that goes line by line: they may never differ in what a file says."""

import json
import math
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.catalog.row_fields import number_names
from schemas.reading.columns import CHUNK_BYTES, MetricTable, columns_of, read_table
from schemas.reading.rows import read_rows
from schemas.reading.times import moment

MOST = 2**53 - 1
NUMBER = st.one_of(st.integers(-MOST, MOST), st.floats(-1e300, 1e300))
TIME = st.datetimes(datetime(1700, 1, 2), datetime(2200, 1, 1))  # noqa: DTZ001 - the zone is added below
ROW = st.fixed_dictionaries(
    {
        "step": st.integers(1, MOST),
        "tokens_seen": st.integers(0, MOST),
        "loss": st.one_of(st.none(), NUMBER),
        "learning_rate": st.floats(0, 1e6),
        "grad_norm": st.one_of(st.none(), st.floats(0, 1e300)),
        "step_seconds": st.floats(0, 1e6),
        "tokens_per_second": st.floats(0, 1e12),
        "device_memory_bytes": st.one_of(st.none(), st.integers(0, MOST)),
        "time": TIME,
    }
)
GOOD = {
    "step": 1,
    "tokens_seen": 8,
    "loss": 2.5,
    "learning_rate": 0.001,
    "grad_norm": None,
    "step_seconds": 0.5,
    "tokens_per_second": 16.0,
    "device_memory_bytes": None,
    "time": "2026-11-20T12:00:00.000000+00:00",
}
LINE = json.dumps(GOOD)


def text_of(rows: list[dict[str, object]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


@given(st.lists(ROW, max_size=8), st.sampled_from(["seconds", "milliseconds", "microseconds"]))
def test_a_table_holds_the_rows_and_their_columns(rows, timespec):
    rows = [row | {"time": row["time"].replace(tzinfo=UTC).isoformat(timespec=timespec)} for row in rows]
    table = read_table(text_of(rows))
    assert isinstance(table, MetricTable)
    assert len(table) == len(rows)
    assert table == rows
    assert [table[index] for index in range(len(rows))] == rows
    listed = columns_of(rows)
    for name in (*number_names(), "seconds"):
        np.testing.assert_array_equal(table.columns[name], listed[name])


@pytest.mark.parametrize(
    "line",
    [
        "",
        "{}",
        LINE[:-1],
        LINE + " " + LINE,
        LINE.replace('"step": 1', '"step": 0'),
        LINE.replace('"step": 1', '"step": 1.5'),
        LINE.replace('"step": 1', '"step": 1.0'),
        LINE.replace('"step": 1', '"step": true'),
        LINE.replace('"step": 1', '"step": 1, "step": 1'),
        LINE.replace('"step": 1', '"step": 1, "st\\u0065p": 1'),
        LINE.replace('"step": 1', '"step": 1, "more": 1'),
        LINE.replace('"loss": 2.5', '"loss": NaN'),
        LINE.replace('"loss": 2.5', '"loss": 1e999'),
        LINE.replace('"loss": 2.5, ', ""),
        LINE.replace("2026-11-20", "2026-02-30"),
        LINE.replace("2026-11-20", "0000-11-20"),
        LINE.replace("2026-11-20", "2026-13-20"),
        LINE.replace("T12:", "T24:"),
        LINE.replace(":00.000000", ":60.000000"),
        LINE.replace(".000000+", "+"),
        LINE.replace(".000000+", ".000+"),
        LINE.replace(".000000+", ".0000000+"),
        LINE.replace("+00:00", "Z"),
        LINE.replace("+00:00", "+01:00"),
        LINE.replace("+00:00", "+00:00 "),
        LINE.replace("2026", "２026"),
        LINE.replace("2026-11-20T", "2026-11-20 "),
    ],
)
def test_what_is_not_beyond_doubt_is_read_line_by_line(line: str, tmp_path: Path):
    text = f"{LINE}\n{line}\n{LINE}\n".encode()
    assert read_table(text) is None
    file = tmp_path / "metrics.jsonl"
    file.write_bytes(text)
    read = read_rows(file, "metric_row")
    assert isinstance(read.values, list)
    assert read.values[0] == read.values[-1] == GOOD


def test_two_times_of_odd_length_do_not_pass_for_two_right_ones():
    short, long = LINE.replace("+00:00", "+00:0"), LINE.replace('"2026', '"02026')
    assert read_table(f"{short}\n{long}\n".encode()) is None


def test_a_torn_tail_leaves_the_table(tmp_path: Path):
    file = tmp_path / "metrics.jsonl"
    file.write_bytes(f"{LINE}\n{LINE}\n{LINE[:40]}".encode())
    read = read_rows(file, "metric_row")
    assert isinstance(read.values, MetricTable)
    assert (len(read.values), read.torn_tail, read.bytes_read) == (2, True, 2 * len(LINE) + 2)
    assert [problem.code for problem in read.problems] == ["TP130"]


def test_text_longer_than_one_chunk_is_one_table():
    rows = CHUNK_BYTES // len(LINE) * 2 + 7
    table = read_table(f"{LINE}\n".encode() * rows)
    assert table is not None
    assert len(table) == rows
    assert table[-1] == GOOD
    assert table[rows // 2 : rows // 2 + 2] == [GOOD, GOOD]
    assert table.columns["loss"].sum() == 2.5 * rows


def test_columns_of_rows_written_in_other_ways():
    rows = [
        GOOD,
        GOOD | {"time": "2026-11-20T13:00:00+01:00", "loss": None},
        GOOD | {"time": "2026-02-30T12:00:00Z", "loss": 3},
    ]
    columns = columns_of(rows)
    at = moment("2026-11-20T12:00:00Z")
    assert at is not None
    assert columns["seconds"][0] == columns["seconds"][1] == at.timestamp()
    assert math.isnan(columns["seconds"][2])
    assert columns["loss"][0] == 2.5
    assert math.isnan(columns["loss"][1])


def test_any_row_of_a_long_table_is_found():
    rows = [GOOD | {"step": step} for step in range(1, 10_001)]
    text = text_of(rows)
    assert len(text) > 2 * CHUNK_BYTES
    table = read_table(text)
    assert table is not None
    assert [table[index] for index in range(len(rows))] == rows
    assert table[-2:9990:-1] == rows[-2:9990:-1]
