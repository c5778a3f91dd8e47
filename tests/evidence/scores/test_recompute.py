"""Results and scores against numbers worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from evidence.scores.recompute import learning_rates, result_of, scores_of


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


@pytest.mark.parametrize(
    ("schedule", "warmup", "final", "rates"),
    [
        ("linear", 2, 0.0, [0.5, 1.0, 1.0, 0.5, 0.0]),
        ("linear", 0, 0.2, [1.0, 0.8, 0.6, 0.4, 0.2]),
        ("cosine", 0, 0.0, [1.0, 0.853553, 0.5, 0.146447, 0.0]),
        ("cosine", 1, 0.5, [1.0, 1.0, 0.875, 0.625, 0.5]),
        ("constant", 4, 0.0, [0.25, 0.5, 0.75, 1.0, 1.0]),
        ("linear", 9, 0.0, [1 / 9, 2 / 9, 3 / 9, 4 / 9, 5 / 9]),
    ],
)
def test_learning_rate_of_each_step(schedule: str, warmup: int, final: float, rates: list[float]) -> None:
    optimizer = {
        "schedule": schedule,
        "learning_rate": 1.0,
        "warmup_steps": warmup,
        "final_learning_rate_fraction": final,
    }
    assert learning_rates(optimizer, np.arange(1.0, 6.0), 5) == pytest.approx(rates, abs=1e-6)


def test_no_item_gives_null() -> None:
    assert scores_of([])["metrics"]["exact_match"] == {
        "value": None,
        "n": 0,
        "n_scored": 0,
        "n_errors": 0,
        "standard_error": None,
        "interval": None,
    }
