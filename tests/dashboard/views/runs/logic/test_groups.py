"""Groups of runs: their order, what is counted, mean and spread."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from dashboard.shared.tables.run_rows import Row, row_of
from dashboard.views.runs.parts.groups import in_groups
from evidence.index.summary import RunSummary


def row(name: str, **fields: Any) -> Row:
    return row_of(RunSummary(path=Path(name), run_id=name, **{"grade": "consistent", "reasons": (), **fields}))


def names(rows: Sequence[Row]) -> list[str]:
    return [row.name for row in rows]


def test_groups_count_and_sum_up_what_agrees() -> None:
    early, late = "2026-11-20T12:00:00Z", "2026-11-21T12:00:00Z"
    rows = [
        row("a", model="m", score=0.5, last_loss=2.0, started_at=early, tags=("x", "y")),
        row("b", model="m", score=0.7, last_loss=1.0, grade="measured", started_at=late, tags=("x",)),
        row("c"),
    ]
    first, second = in_groups(rows, "model")
    assert (first.value, names(first.rows), first.consistent, first.counted) == ("m", ["a", "b"], 1, 2)
    assert (first.score.n, first.score.best, first.score.mean) == (2, 0.7, 0.6)
    assert first.score.spread == pytest.approx(0.02**0.5)
    assert (first.loss.best, first.loss.mean, first.loss.spread) == (1.0, 1.5, pytest.approx(0.5**0.5))
    assert first.newest == datetime(2026, 11, 21, 12, tzinfo=UTC)
    assert (second.value, second.score.best, second.loss.mean, second.newest) == (None, None, None, None)
    assert [(group.value, names(group.rows)) for group in in_groups(rows, "tag")] == [
        ("x", ["a", "b"]),
        ("y", ["a"]),
        (None, ["c"]),
    ]


def test_groups_of_numbers_come_in_their_order_and_others_by_size() -> None:
    rates = [0.001, 0.002, None, 0.0005, 0.004, 0.001, 1e-05]
    rows = [row(f"r{place}", settings={"rate": rate} if rate else {}) for place, rate in enumerate(rates)]
    assert [group.value for group in in_groups(rows, "rate")] == ["1e-05", "0.0005", "0.001", "0.002", "0.004", None]
    words = [row(f"w{place}", model=model) for place, model in enumerate(["b", "a", "c", "c", None, None, None])]
    assert [group.value for group in in_groups(words, "model")] == ["c", "a", "b", None]


def test_a_mean_is_over_full_runs_and_over_smoke_runs_only_where_there_is_no_full_one() -> None:
    rows = [
        row("f1", mode="full", model="m", score=0.9),
        row("f2", mode="full", model="m", score=0.7),
        row("s1", mode="smoke", model="m", score=0.0),
        row("s2", mode="smoke", model="n", score=0.1),
        row("lie", mode="full", model="m", score=1.0, last_loss=0.0, grade="contradictory"),
    ]
    first, second = in_groups(rows, "model")
    assert (first.score.n, first.over, first.score.mean) == (2, "full", pytest.approx(0.8))
    assert first.counted == 2, "what a run that contradicts itself states counts for nothing"
    assert first.loss.best is None
    assert (second.counted, second.over, second.score.mean) == (1, "smoke", 0.1)
    assert second.score.spread is None


def test_a_run_that_contradicts_itself_is_in_no_mean_and_is_not_the_best() -> None:
    rows = [
        row("a", model="m", mode="full", score=0.5, last_loss=2.0),
        row("b", model="m", mode="full", score=0.7, last_loss=1.0),
        row("forged", model="m", mode="full", score=0.99, last_loss=0.1, grade="contradictory"),
        row("alone", model="n", mode="full", score=0.98, grade="contradictory"),
    ]
    first, second = in_groups(rows, "model")
    assert (names(first.rows), first.counted) == (["a", "b", "forged"], 2)
    assert (first.score.best, first.score.mean, first.loss.best) == (0.7, pytest.approx(0.6), 1.0)
    assert (names(second.rows), second.counted, second.over) == (["alone"], 0, None)
    assert (second.score.n, second.score.best, second.score.mean) == (0, None, None)
