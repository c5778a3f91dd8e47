"""The last loss and the steps of a run: over several logs, to a loss that is not finite, under Lightning's names."""

from __future__ import annotations

from pathlib import Path

import pytest

from evidence.records.foreign_run import read_foreign
from evidence.run import read_run
from foreign.checks.judgement import Figures, figures_of
from foreign.readers.rows import course_of
from foreign.readers.statement import Citation
from foreign.readers.view import MetricRow
from trainproof.terminal.runs import run_text

CASES = Path(__file__).parents[2] / "cases" / "foreign"


def figures(case: str) -> Figures:
    return figures_of(read_foreign(CASES / case / "folder"))


def rows(file: str, *steps: int) -> list[MetricRow]:
    return [MetricRow(values={"step": step, "loss": 3 - step / 100}, source=Citation(file=file)) for step in steps]


def test_a_resumed_run_ends_in_its_last_log() -> None:
    found = figures("resumed_in_another_log")
    assert (found.steps_done, found.steps_planned, found.last_loss) == (100, 100, 1.901)
    assert tuple(found.losses) == (2.9, 2.8, 2.7, 2.6, 2.5, 2.301, 2.201, 2.101, 2.001, 1.901)


def test_a_course_that_ends_in_nan_has_no_last_loss() -> None:
    found = figures("not_finite_to_the_end")
    assert (found.steps_done, tuple(found.losses), found.last_loss) == (50, (2.9, 2.8), None)
    text = run_text(read_run(CASES / "not_finite_to_the_end" / "folder"))
    assert "\n  last loss        not finite; the last that is: 2.8000\n" in text


def test_lightning_states_a_loss_of_the_step_and_one_of_the_epoch() -> None:
    found = figures("lightning")
    assert (found.steps_done, tuple(found.losses), found.last_loss) == (40, (2.875, 2.75, 2.625, 2.5), 2.5)


@pytest.mark.parametrize(
    ("beside", "row", "steps_done"),
    [
        ("hparams.yaml", "99,1,2.5", 100),  # as Lightning counts: the first step is 0
        ("hparams.yaml", "7,7,2.5", 7),  # a user of Lightning logs the epoch under the name of the step
        ("config.yaml", "99,1,2.5", 99),
    ],
)
def test_steps_count_from_zero_where_lightning_wrote_them(
    tmp_path: Path, beside: str, row: str, steps_done: int
) -> None:
    (tmp_path / beside).write_text("learning_rate: 0.01\n")
    (tmp_path / "metrics.csv").write_text(f"step,epoch,train_loss\n0,0,2.9\n{row}\n")
    assert figures_of(read_foreign(tmp_path)).steps_done == steps_done


def test_a_null_beside_the_loss_of_an_evaluation_ends_nothing() -> None:
    evaluated = MetricRow(values={"step": 20, "loss": None, "eval_loss": 2.5}, source=Citation(file="x.jsonl"))
    assert [row.values["step"] for row in course_of([*rows("x.jsonl", 10, 20), evaluated])] == [10, 20]


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ((10, 20, 30), (40, 50), [10, 20, 30, 40, 50]),
        ((10, 20, 30, 40), (30, 40, 50), [10, 20, 30, 40, 50]),
        ((40, 50), (10, 20, 30), [10, 20, 30, 40, 50]),
        ((1, 2, 3, 4), (10, 20, 30), [1, 2, 3, 4]),
        ((10, 20, 30, 40), (10, 20, 30), [10, 20, 30, 40]),
        ((10, 20, 30, 40), (20, 30, 50), [10, 20, 30, 40]),
    ],
)
def test_only_what_goes_on_is_joined(first: tuple[int, ...], second: tuple[int, ...], expected: list[int]) -> None:
    course = course_of([*rows("a.log", *first), *rows("b.log", *second)])
    assert [row.values["step"] for row in course] == expected
