"""Columns made from buffers are those that pyarrow makes, and nothing of pandas is loaded for them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboard.shared.tables import arrow

NUMBERS = st.one_of(st.none(), st.floats())
TEXTS = st.one_of(st.none(), st.text(st.characters(exclude_categories=["Cs"])))
ZONES = st.sampled_from([UTC, timezone(timedelta(hours=-9, minutes=-30))])
TIMES = st.one_of(st.none(), st.datetimes(datetime(1, 1, 3), datetime(9999, 12, 29), timezones=ZONES))  # noqa: DTZ001


def same(found: pa.Array, expected: pa.Array) -> None:
    found.validate(full=True)
    assert found.equals(expected)


@given(st.lists(NUMBERS))
def test_numbers(values: list[float | None]) -> None:
    same(arrow.floats(values), pa.array(values, pa.float64(), from_pandas=True))


@pytest.mark.parametrize("kind", ["float32", "float64", "int32", "int64"])
def test_arrays_keep_their_kind(kind: str) -> None:
    values = np.arange(20).astype(kind)[::2]
    same(arrow.numbers(values), pa.array(values))


@given(st.lists(TEXTS))
def test_texts(values: list[str | None]) -> None:
    same(arrow.texts(values), pa.array(values, pa.string()))


def test_half_a_character_is_written_as_its_code() -> None:
    assert arrow.texts(["a\ud800"]).to_pylist() == ["a\\ud800"]


@given(st.lists(TIMES))
def test_times(values: list[datetime | None]) -> None:
    same(arrow.times(values), pa.array(values, pa.timestamp("us", tz="UTC")))


@given(st.lists(st.lists(st.floats(allow_nan=False))), st.lists(st.lists(st.text(st.characters(codec="utf-8")))))
def test_lists(numbers: list[list[float]], words: list[list[str]]) -> None:
    same(arrow.lists_of_floats(numbers), pa.array(numbers, pa.list_(pa.float64())))
    same(arrow.lists_of_texts(words), pa.array(words, pa.list_(pa.string())))


def test_a_table_is_read_back_as_it_was() -> None:
    found = arrow.table({"run": arrow.texts(["a", None]), "loss": arrow.floats([0.5, None])})
    assert found.to_pydict() == {"run": ["a", None], "loss": [0.5, None]}
