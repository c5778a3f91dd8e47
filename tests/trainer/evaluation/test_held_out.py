"""Quality over time: measured at some steps, held by `check`, the same in a repetition and a continued run."""

import json
import shutil
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from forging import read_rows
from leaves import Forger, Forgery
from model_folders import row_file

from evidence import layout
from evidence.grade import find_problems
from evidence.run import read_run
from evidence.scores.recompute import draw_ids
from trainer.config.tree import (
    BatchConfig,
    CheckpointConfig,
    Config,
    DataConfig,
    EvaluationConfig,
    LimitsConfig,
    OptimizerConfig,
    RecordingConfig,
)
from trainer.loop.checkpoints import checkpoint_steps
from trainer.objectives import find_contradictions
from trainer.replay.recorded import ReplayRequest
from trainer.replay.replay import replay

WORDS = ("red", "blue", "green", "white", "black")
ROWS = [{"prompt": f"Say {word}: ", "completion": word} for word in WORDS]
ITEMS = [{"id": word, "prompt": f"Say {word}: ", "expected": word} for word in WORDS]


@pytest.fixture(scope="module")
def watched(config, shared_rows) -> Config:
    """Fifty steps on five words, evaluated on three of them at every tenth."""
    return replace(
        config,
        data=DataConfig(dataset=shared_rows("five_words", *ROWS), max_length=32),
        optimizer=OptimizerConfig(learning_rate=1e-2, schedule="constant"),
        batch=BatchConfig(microbatch_size=5),
        checkpoint=CheckpointConfig(save_every_steps=20, keep=1, keep_best="held_out_score"),
        recording=RecordingConfig(log_every_steps=7, states_mib=0),
        evaluation=EvaluationConfig(
            eval_set=shared_rows("five_items", *ITEMS), max_new_tokens=6, baseline=False, every_steps=10, during_items=3
        ),
        limits=LimitsConfig(steps=50),
    )


@pytest.fixture(scope="module")
def made(finished, watched) -> Path:
    return finished(watched)


def points_of(folder: Path) -> dict[int, tuple[float, float]]:
    rows = read_rows(folder, layout.METRICS)
    return {row["step"]: (row["held_out_score"], row["held_out_loss"]) for row in rows if "held_out_score" in row}


def errors_of(folder: Path) -> set[str]:
    return {each.code for each in find_problems(read_run(folder)) if each.severity == "error"}


@pytest.mark.slow
def test_score_loss_and_answers_are_recorded_at_the_configured_steps(made):
    points = points_of(made)
    assert list(points) == [10, 20, 30, 40, 50]
    answers = read_rows(made, layout.ANSWERS_OVER_STEPS)
    drawn = draw_ids(WORDS, 3, 0)
    assert [row["id"] for row in answers] == drawn * 5
    for step, (score, _) in points.items():
        assert score == sum(row["correct"] for row in answers if row["step"] == step) / 3
    assert points[50][1] < points[10][1], "the words were learned"
    assert {row["step"] for row in read_rows(made)} == {1, 7, 10, 14, 20, 21, 28, 30, 35, 40, 42, 49, 50}
    # At the end the same program gives the same answers of the same model.
    ended = {row["id"]: row["output_text"] for row in read_rows(made, layout.PREDICTIONS)}
    assert {row["id"]: row["output_text"] for row in answers if row["step"] == 50} == {
        each: ended[each] for each in drawn
    }
    assert errors_of(made) <= {"TP408"}


def test_held_out_seconds_are_no_part_of_step_seconds(made):
    manifest = json.loads((made / layout.MANIFEST).read_text())
    rows = read_rows(made, layout.METRICS)
    firsts = [0, *(each["step"] for each in rows[:-1])]
    steps = sum(row["step_seconds"] * (row["step"] - before) for row, before in zip(rows, firsts, strict=True))
    asked = sum(row.get("held_out_seconds", 0) for row in rows)
    assert asked > 0
    assert steps + asked <= manifest["result"]["train_seconds"]


def test_the_best_checkpoint_is_kept_beside_the_newest(made):
    scores = {step: score for step, (score, _) in points_of(made).items()}
    best = min(step for step in scores if scores[step] == max(scores.values()))
    assert checkpoint_steps(made) == sorted({50, best}, reverse=True)
    told = [row["fields"] for row in read_rows(made, layout.LOG) if row["event"] == "best_so_far"]
    assert (told[-1]["step"], told[-1]["value"]) == (best, max(scores.values()))


@pytest.mark.slow
def test_a_repetition_measures_the_same(made):
    receipt, code = replay(ReplayRequest(folder=made, whole=True), lambda line: None, lambda event: None)
    assert (receipt["result"], code) == ("identical", 0), receipt["said"]


def test_a_continued_run_measures_the_same(made, watched, train, tmp_path):
    begun = shutil.copytree(made, tmp_path / "begun")
    for step in checkpoint_steps(begun)[:-1]:
        shutil.rmtree(begun / layout.CHECKPOINTS / str(step))
    [from_step] = checkpoint_steps(begun)
    folder = train(watched, "on", resume=begun)
    assert points_of(folder) == {step: each for step, each in points_of(made).items() if step > from_step}
    assert errors_of(folder) <= {"TP408"}


Change = Callable[[dict[str, Any]], None]


def score(values: dict[str, Any]) -> None:
    row = next(row for row in values[layout.METRICS] if row["step"] == 10)
    row["held_out_score"] = 1.0 if row["held_out_score"] < 1 else 0.0


FORGED: dict[str, tuple[str, str, Change]] = {
    "score": ("TP396", layout.METRICS, score),
    "verdict": ("TP396", "", lambda values: values["answers"][0].update(correct=not values["answers"][0]["correct"])),
    "a point less": ("TP396", "", lambda values: values["answers"].__delitem__(slice(3, 6))),
    "another item": ("TP397", "", lambda values: values["answers"][1].update(id="other")),
    "an easier prompt": ("TP397", "", lambda values: values["answers"][1].update(prompt="Say it.")),
}


@pytest.mark.parametrize("name", FORGED)
def test_check_finds_what_does_not_follow(name, made, tmp_path):
    code, file, change = FORGED[name]
    forger = Forger(made, tmp_path / "forged")
    values = deepcopy(forger.values) | {"answers": read_rows(made, layout.ANSWERS_OVER_STEPS)}
    change(values)
    row_file(forger.folder / layout.ANSWERS_OVER_STEPS, *values.pop("answers"))
    forger._reseal(values, Forgery(file=file or "all", what="told"))
    assert code in errors_of(forger.folder)


@pytest.mark.parametrize(
    ("evaluation", "keep_best", "pointer"),
    [
        ({"every_steps": 5}, None, "/evaluation/every_steps"),
        ({"eval_set": "eval_v1", "during_items": 4}, None, "/evaluation/during_items"),
        ({"eval_set": "eval_v1"}, "held_out_loss", "/checkpoint/keep_best"),
    ],
)
def test_settings_without_effect_are_refused(evaluation, keep_best, pointer, watched):
    config = replace(
        watched,
        evaluation=EvaluationConfig(**evaluation),
        checkpoint=CheckpointConfig(keep_best=keep_best),
    )
    assert [(each.code, each.pointer) for each in find_contradictions(config)] == [("TP009", pointer)]


def test_items_are_drawn_from_the_seed_in_the_order_of_the_set():
    ids = [f"q{n}" for n in range(40)]
    one, other = draw_ids(ids, 8, 0), draw_ids(ids, 8, 1)
    assert len(set(one)) == 8
    assert one == sorted(one, key=ids.index) != other
    assert draw_ids(ids, 99, 0) == ids
    assert set(draw_ids(ids, 8, 0)) < set(draw_ids(ids, 9, 0)), "more items are the same and others"
