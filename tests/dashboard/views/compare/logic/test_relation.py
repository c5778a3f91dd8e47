from __future__ import annotations

from pathlib import Path

import pytest

from dashboard.views.compare.logic import relation
from dashboard.views.compare.logic.relation import parallel_drawing as drawing
from evidence.index.summary import RunSummary


def run(name: str, **more) -> RunSummary:
    return RunSummary(path=Path(name), run_id=name, grade="consistent", reasons=(), **more)


RUNS = [
    run(
        "a", settings={"optimizer.learning_rate": 0.001, "optimizer.name": "adamw", "seed": 1}, last_loss=1.5, score=0.5
    ),
    run(
        "b", settings={"optimizer.learning_rate": 0.1, "optimizer.name": "lion", "seed": 2}, last_loss=1.25, score=0.75
    ),
    run("=c", settings={}, figures={"result.mean_loss": 2.0}),
]


def test_numbers_keep_their_values_and_words_get_places() -> None:
    rate, name = relation.scale(RUNS, "optimizer.learning_rate"), relation.scale(RUNS, "optimizer.name")
    assert (rate.places, rate.words, rate.is_wide) == ((0.001, 0.1, None), (), True)
    assert (name.places, name.words) == ((0, 1, None), ("adamw", "lion"))
    assert [name.shown(index) for index in range(3)] == ["adamw", "lion", None]


def test_a_setting_that_is_a_number_here_and_a_word_there_is_a_word() -> None:
    mixed = [run("a", settings={"x": 3}), run("b", settings={"x": "auto"}), run("c", settings={"x": True})]
    assert relation.scale(mixed, "x").words == ("3", "auto", "true")


def test_words_beyond_what_an_axis_holds_stand_together() -> None:
    many = [run(str(number), model=f"model {number:03}") for number in range(40)]
    found = relation.scale(many, "model")
    assert len(found.words) == relation.MOST_WORDS
    assert found.words[-1] == "other"
    assert sum(found.shown(index) == "other" for index in range(40)) == 11


def test_pictures_begin_with_what_was_tried_out_and_what_came_of_it() -> None:
    assert relation.telling(RUNS[:2]) == ["optimizer.learning_rate", "optimizer.name", "seed"]
    assert relation.first_axes(RUNS[:2]) == ("optimizer.learning_rate", "exact match")
    assert relation.first_scales(RUNS[:2]) == [
        "optimizer.learning_rate", "optimizer.name", "seed", "last loss", "exact match",
    ]  # fmt: skip
    assert set(relation.first_scales(RUNS)) <= set(relation.names(RUNS))


def test_the_setting_that_was_tried_out_comes_before_those_that_merely_differ() -> None:
    rates = [0.001, 0.002, 0.004, 0.008]
    runs = [
        run(
            str(rate),
            last_loss=rate,
            settings={
                "batch.microbatch_size": 8 if rate < 0.008 else 4,
                "optimizer.beta1": 0.9 if rate < 0.008 else 0.8,
                "optimizer.learning_rate": rate,
                "recording.log_every_steps": int(1000 * rate),
            },
        )
        for rate in rates
    ]
    assert relation.telling(runs) == [
        "optimizer.learning_rate", "optimizer.beta1", "batch.microbatch_size", "recording.log_every_steps",
    ]  # fmt: skip
    assert relation.first_axes(runs) == ("optimizer.learning_rate", "last loss")


def test_what_hardly_a_run_has_is_no_first_axis() -> None:
    many = [run(str(seed), last_loss=1.0, settings={"limits.steps": 9, "seed": seed}) for seed in range(30)]
    odd = run("odd", last_loss=1.0, score=0.5, settings={"limits.steps": 10**6, "seed": 30})
    assert relation.telling([*many, odd]) == ["seed", "limits.steps"]
    assert relation.first_axes([*many, odd]) == ("seed", "last loss")


def test_what_runs_without_what_came_of_them_tried_out_is_no_first_axis() -> None:
    scored = [
        run(name, score=0.5, settings={"optimizer.name": "adamw", "seed": seed}) for seed, name in enumerate("ab")
    ]
    unscored = run("c", settings={"optimizer.name": "lion", "seed": 2})
    assert relation.first_axes([*scored, unscored]) == ("seed", "exact match")


@pytest.mark.parametrize(
    ("runs", "axes"),
    [
        ([run("a", steps_done=10, last_loss=2.0), run("b", steps_done=20, last_loss=1.0)], ("steps", "last loss")),
        ([run("a", steps_done=10, tokens_seen=3), run("b", steps_done=20, tokens_seen=4)], ("tokens", "steps")),
        ([run("a"), run("b")], ("model", "exact match")),
    ],
)
def test_runs_of_other_tools_begin_with_their_size(runs: list[RunSummary], axes: tuple[str, str]) -> None:
    assert relation.first_axes(runs) == axes


def test_a_run_that_states_nothing_there_is_a_gap() -> None:
    scales = [relation.scale(RUNS, name) for name in ("optimizer.name", "last loss")]
    option = drawing(scales, colour="#111111", chosen_colour="#222222", chosen=[1], words="#333")
    assert [axis["type"] for axis in option["parallelAxis"]] == ["category", "value"]
    assert [lines["data"] for lines in option["series"]] == [[[0, 1.5], ["-", "-"]], [[1, 1.25]]]


def test_the_csv_has_no_formula() -> None:
    assert relation.relation_csv(RUNS, ["last loss", "optimizer.name"]) == (
        "run,last loss,optimizer.name\na,1.5,adamw\nb,1.25,lion\n'=c,,\n"
    )
