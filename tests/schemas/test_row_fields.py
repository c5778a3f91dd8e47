"""A field of a metric row is stated once, in its schema; every reader takes it from there."""

import json

import numpy as np
import pytest
from changed_schema import changed_schema, with_row_field

from schemas.catalog import schema
from schemas.catalog.row_fields import PanelStyle, RowField, number_names, row_fields
from schemas.reading.columns import MetricTable, columns_of, read_table
from schemas.reading.rows import read_rows

KL = {
    "title": "KL",
    "type": "number",
    "minimum": 0,
    "maximum": 1e9,
    "description": "Divergence from the reference model.",
    "x-unit": "nats",
    "x-panel": {"log": True, "exactly": "per token"},
}
ROW = {
    "step": 1,
    "tokens_seen": 8,
    "loss": 2.5,
    "learning_rate": 0.001,
    "grad_norm": None,
    "step_seconds": 0.5,
    "tokens_per_second": 16.0,
    "device_memory_bytes": None,
    "time": "2026-11-20T12:00:00+00:00",
}


@pytest.fixture
def invented():
    with changed_schema("metric_row", with_row_field("token_entropy", KL)):
        yield


def lines(*rows: dict) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def test_the_fields_are_those_of_the_schema():
    document = schema("metric_row")
    assert [field.name for field in row_fields()] == list(document["properties"])
    assert [field.name for field in row_fields() if field.is_required] == document["required"]
    assert [field.name for field in row_fields() if field.is_axis] == ["step", "tokens_seen", "time"]
    assert [field.name for field in row_fields() if field.panel and field.panel.is_large] == [
        "loss",
        "reward_mean",
    ]


def test_an_invented_field_is_there_while_the_schema_has_it(invented):
    assert row_fields()[-1] == RowField(
        name="token_entropy",
        title="KL",
        meaning="Divergence from the reference model.",
        unit="nats",
        is_required=False,
        is_axis=False,
        panel=PanelStyle(is_large=False, is_log=True, exactly="per token"),
    )
    assert number_names()[-1] == "token_entropy"


def test_the_invented_field_is_gone_afterwards():
    assert "token_entropy" not in number_names()


def test_a_table_has_an_optional_field_where_rows_state_it(invented):
    rows = [ROW | {"token_entropy": 0.25}, ROW | {"step": 2}, ROW | {"step": 3, "token_entropy": 0.5}]
    table = read_table(lines(*rows))
    assert isinstance(table, MetricTable)
    assert table == rows
    np.testing.assert_array_equal(table.columns["token_entropy"], [0.25, np.nan, 0.5])
    np.testing.assert_array_equal(columns_of(rows)["token_entropy"], [0.25, np.nan, 0.5])


@pytest.mark.parametrize(
    "line",
    [
        '"token_entropy": 1, "token_entropy": 2',
        '"token_entropy": null',
        '"token_entropy": -1',
        '"token_entropy": "1"',
        '"k": 1',
    ],
)
def test_a_wrong_optional_field_is_explained(line, invented, tmp_path):
    text = lines(ROW | {"token_entropy": 0.25}) + lines(ROW).replace(b'"step": 1', f'"step": 2, {line}'.encode())
    assert read_table(text) is None
    (tmp_path / "metrics.jsonl").write_bytes(text)
    read = read_rows(tmp_path / "metrics.jsonl", "metric_row")
    assert list(read.values) == [ROW | {"token_entropy": 0.25}]
    assert [problem.line for problem in read.problems] == [2]


def test_rows_without_the_field_are_valid_as_before(invented, tmp_path):
    (tmp_path / "metrics.jsonl").write_bytes(lines(ROW, ROW | {"step": 2}))
    read = read_rows(tmp_path / "metrics.jsonl", "metric_row")
    assert read.problems == ()
    assert isinstance(read.values, MetricTable)
