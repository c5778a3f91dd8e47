from __future__ import annotations

import numpy as np

from dashboard.shared.charts.lineage import Ancestor, lineage
from dashboard.shared.reading.series import Series
from schemas.catalog import number_names


def series(first: int, last: int) -> Series:
    """Return rows of these steps, one a second, 100 tokens each, the step as their loss."""
    steps = np.arange(float(first), last + 1)
    columns = {name: np.full(len(steps), np.nan) for name in number_names()}
    columns |= {"step": steps, "tokens_seen": steps * 100, "loss": steps, "seconds": steps - first}
    return Series(columns=columns, unread=0)


def child_of(parent: str, step: int) -> dict:
    return {"parent": {"run_id": parent, "step": step}}


def test_a_run_that_starts_afresh_has_nothing_before_it() -> None:
    rows = series(1, 5)
    found = lineage({"parent": None}, None, rows, lambda name: None)
    assert (found.series, found.earlier, found.resumed, found.scores, found.missing) == (rows, None, (), (), None)


def test_parents_are_cut_where_they_were_taken_over_and_time_goes_on() -> None:
    runs = {
        "first": Ancestor(manifest={"parent": None}, eval_summary=None, series=series(1, 10)),
        "second": Ancestor(manifest=child_of("first", 6), eval_summary=None, series=series(7, 12)),
    }
    summary = {"checkpoint": {"step": 14}, "metrics": {"exact_match": {"value": 0.5}}}
    found = lineage(child_of("second", 10), summary, series(11, 14), runs.get)
    assert found.earlier is not None
    assert found.earlier.columns["step"].tolist() == [*range(1, 11)]
    assert found.earlier.columns["seconds"].tolist() == [0, 1, 2, 3, 4, 5, 5, 6, 7, 8]
    assert found.series.columns["seconds"].tolist() == [8, 9, 10, 11]
    assert [(mark.at["step"], mark.text) for mark in found.resumed] == [
        (7, "resumed after step 6"),
        (11, "resumed after step 10"),
    ]
    assert [(mark.at["step"], mark.at["tokens_seen"], mark.score) for mark in found.scores] == [(14, 1400, 0.5)]


def test_time_goes_on_over_a_parent_without_rows() -> None:
    runs = {
        "first": Ancestor(manifest={"parent": None}, eval_summary=None, series=series(1, 10)),
        "second": Ancestor(manifest=child_of("first", 10), eval_summary=None, series=series(1, 0)),
    }
    found = lineage(child_of("second", 10), None, series(11, 12), runs.get)
    assert found.series.columns["seconds"].tolist() == [9, 10]
    assert [mark.text for mark in found.resumed] == ["resumed after step 10"]


def test_a_parent_that_is_not_at_hand_is_named() -> None:
    found = lineage(child_of("gone", 10), None, series(11, 14), lambda name: None)
    assert (found.missing, found.earlier, len(found.resumed)) == ("gone", None, 1)


def test_a_circle_of_parents_ends() -> None:
    runs = {
        name: Ancestor(manifest=child_of(other, 3), eval_summary=None, series=series(1, 4))
        for name, other in ("ab", "ba")
    }
    found = lineage(child_of("a", 3), None, series(4, 6), runs.get)
    assert found.earlier is not None
    assert found.earlier.rows == 6
