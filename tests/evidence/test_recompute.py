"""Results and scores against numbers worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from evidence.recompute import result_of, scores_of


def row(step: int, loss: float | None) -> dict[str, Any]:
    return {"step": step, "tokens_seen": step * 100, "loss": loss}


def test_first_last_mean_and_best_are_different_numbers() -> None:
    assert result_of([row(1, 4.0), row(2, 1.0), row(3, 1.0), row(4, 2.0)]) == {
        "first_loss": 4.0,
        "last_loss": 2.0,
        "mean_loss": 2.0,
        "best_loss": 1.0,
        "best_step": 2,
        "tokens_seen": 400,
    }


def test_a_loss_that_is_not_finite_counts_for_neither_mean_nor_best() -> None:
    result = result_of([row(1, 4.0), row(2, 2.0), row(3, None)])
    assert (result["mean_loss"], result["best_loss"], result["last_loss"]) == (3.0, 2.0, None)


def test_nothing_measured_is_null_and_never_zero() -> None:
    assert set(result_of([]).values()) == {None}


def prediction(
    *, correct: bool, ok: bool = True, error: str | None = None, section: str | None = "a"
) -> dict[str, Any]:
    return {
        "correct": correct,
        "format_ok": ok,
        "error": error,
        "section": section,
        "category": "c",
        "difficulty": None,
    }


def test_an_error_counts_as_wrong() -> None:
    rows = [prediction(correct=True)] * 3 + [prediction(correct=True, ok=True, error="too long")]
    metric = scores_of(rows)["metrics"]["exact_match"]
    assert (metric["value"], metric["n"], metric["n_scored"], metric["n_errors"]) == (0.75, 4, 3, 1)
    assert metric["standard_error"] == pytest.approx((0.75 * 0.25 / 4) ** 0.5, abs=1e-15)


def test_wilson_interval_of_8_in_10() -> None:
    rows = [prediction(correct=number < 8) for number in range(10)]
    interval = scores_of(rows)["metrics"]["exact_match"]["interval"]
    assert (round(interval["low"], 4), round(interval["high"], 4)) == (0.4902, 0.9433)
    assert (interval["level"], interval["method"]) == (0.95, "wilson")


def test_groups_hold_the_items_that_state_one() -> None:
    rows = [prediction(correct=True, section="a"), prediction(correct=False, section="b", ok=False)]
    rows.append(prediction(correct=False, section=None))
    groups = scores_of(rows)["groups"]
    assert {name: block["exact_match"]["value"] for name, block in groups["section"].items()} == {"a": 1.0, "b": 0.0}
    assert groups["section"]["b"]["format_compliance"]["value"] == 0.0
    assert groups["category"]["c"]["exact_match"]["n"] == 3
    assert groups["difficulty"] == {}


def test_no_item_gives_null() -> None:
    assert scores_of([])["metrics"]["exact_match"] == {
        "value": None,
        "n": 0,
        "n_scored": 0,
        "n_errors": 0,
        "standard_error": None,
        "interval": None,
    }
