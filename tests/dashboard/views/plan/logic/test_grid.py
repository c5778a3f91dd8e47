"""The map of batch by length: its frontier, what a cell says, and documents that are none."""

from __future__ import annotations

from typing import Any

import pytest
from plan_answers import GIB, grid_document

from dashboard.shared.charts.plan_figures import DARK, LIGHT
from dashboard.views.plan.logic import grid


def answer(verdicts: dict[tuple[int, int], str], limit: float | None = 16.0) -> dict[str, Any]:
    """Return a map in which each sequence of 100 tokens needs 1 GiB."""
    cells = [
        {"microbatch_size": batch, "max_length": length, "verdict": verdict, "need_bytes": batch * length * GIB // 100}
        for (batch, length), verdict in verdicts.items()
    ]
    return {"grid": {"cells": cells, "available_bytes": None if limit is None else int(limit * GIB)}}


SMALL = {
    (1, 100): "fits",
    (2, 100): "fits",
    (4, 100): "tight",
    (1, 200): "does_not_fit",
    (2, 200): "does_not_fit",
    (4, 200): "does_not_fit",
}


def test_the_frontier_is_above_what_fits_in_each_column() -> None:
    found = grid.grid(answer(SMALL))
    assert found is not None
    assert (found.batches, found.lengths) == ((1, 2, 4), (100, 200))
    assert grid.largest_that_fits(found) == [2, 0]
    assert grid.frontier(found) == ([-0.5, 0.5, 0.5, 1.5], [1.5, 1.5, -0.5, -0.5])


def test_a_larger_batch_that_fits_above_one_that_does_not_is_no_part_of_what_fits() -> None:
    found = grid.grid(answer(SMALL | {(2, 100): "tight", (4, 100): "fits"}))
    assert found is not None
    assert grid.largest_that_fits(found) == [1, 0]


def test_the_sentence_names_the_size_with_the_most_tokens() -> None:
    found = grid.grid(answer(SMALL | {(1, 200): "fits"}))
    assert found is not None
    # 2 × 100 and 1 × 200 have as many tokens; longer sequences count for more.
    expected = "Most tokens that fit in a microbatch: 1 × 200 tokens = 200, 2.00 GiB of 16.00 GiB."
    assert grid.in_one_sentence(found) == expected
    nothing = grid.grid(answer(dict.fromkeys(SMALL, "does_not_fit")))
    assert nothing is not None
    assert grid.in_one_sentence(nothing) == "None of these sizes fits."


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_each_cell_has_its_verdict_as_a_symbol_and_its_need(colours) -> None:
    found = grid.grid(answer(SMALL))
    assert found is not None
    figure = grid.heat_map(found, colours, chosen=(2, 100)).to_plotly_json()
    cells = figure["data"][0]
    assert [list(row) for row in cells["text"]] == [["✓ 1.0", "✕ 2.0"], ["✓ 2.0", "✕ 4.0"], ["! 4.0", "✕ 8.0"]]
    assert [list(row) for row in cells["z"]] == [[0, 2], [0, 2], [1, 2]]
    frame = figure["layout"]["shapes"][0]
    assert (frame["x0"], frame["x1"], frame["y0"], frame["y1"]) == (-0.46, 0.46, 0.56, 1.44)
    assert figure["layout"]["xaxis"]["title"]["text"] == "tokens of a sequence; in the cells GiB on each device"


def test_needs_of_a_small_model_are_in_a_unit_in_which_they_can_be_told_apart() -> None:
    cells = [
        {"microbatch_size": batch, "max_length": 8, "verdict": "fits", "need_bytes": need}
        for batch, need in ((1, 3 * 2**20), (2, 40 * 2**20), (4, 1200 * 2**20))
    ]
    found = grid.grid({"grid": {"cells": cells, "available_bytes": 16 * GIB}})
    assert found is not None
    figure = grid.heat_map(found, LIGHT).to_plotly_json()
    assert [row[0] for row in figure["data"][0]["text"]] == ["✓ 3.0", "✓ 40.0", "✓ 1,200"]
    assert figure["layout"]["xaxis"]["title"]["text"] == "tokens of a sequence; in the cells MiB on each device"


def test_a_pair_that_was_not_planned_is_empty_and_ends_what_fits() -> None:
    found = grid.grid(answer({(1, 100): "fits", (4, 100): "fits", (2, 200): "fits"}))
    assert found is not None
    assert grid.largest_that_fits(found) == [1, 0]
    cells = grid.heat_map(found, LIGHT).to_plotly_json()["data"][0]
    assert [list(row) for row in cells["text"]] == [["✓ 1.0", ""], ["", "✓ 4.0"], ["✓ 4.0", ""]]


@pytest.mark.parametrize(
    "bad",
    [
        None,
        {},
        {"grid": None},
        {"grid": {"cells": "all"}},
        {"grid": {"cells": [{"microbatch_size": -1, "max_length": 8}, {"microbatch_size": 1.5, "max_length": 8}]}},
        {"grid": {"cells": [{"microbatch_size": 10**400, "max_length": 1}, 7, None, {"microbatch_size": True}]}},
    ],
)
def test_what_is_no_map_is_none(bad: Any) -> None:
    assert grid.grid(bad) is None


def test_a_cell_without_figures_is_drawn_as_unknown() -> None:
    found = grid.grid(
        {"grid": {"cells": [{"microbatch_size": 1, "max_length": 8, "verdict": "<b>", "need_bytes": -5}]}}
    )
    assert found is not None
    assert grid.heat_map(found, LIGHT).to_plotly_json()["data"][0]["text"] == [["?"]]


def test_a_map_of_thousands_is_cut() -> None:
    cells = [{"microbatch_size": number + 1, "max_length": 8, "verdict": "fits"} for number in range(5000)]
    found = grid.grid({"grid": {"cells": cells}})
    assert found is not None
    assert len(found.batches) == grid.MOST_SIDE


def test_the_map_of_a_whole_answer_has_a_frontier_that_falls() -> None:
    found = grid.grid(grid_document())
    assert found is not None
    # With an error of 10 %, 14.3 GiB may be planned: 4 GiB + 0.7 MiB a token are 15,090 tokens, 64 × 128 to 2 × 4,096.
    assert grid.largest_that_fits(found) == [7, 6, 5, 4, 3, 2]
