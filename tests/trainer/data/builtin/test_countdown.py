"""Countdown: solutions by Python's own arithmetic, completeness by brute force, and splits that share no item."""

from __future__ import annotations

import itertools
import re
import sys
from pathlib import Path

from configs import changed
from model_folders import row_file
from refusals import catch_problems
from tasks import inputs_of

from evidence.rewards import Attempt, build_rewards
from evidence.scores.reading import Scoring
from trainer.config.tree import Config, ModelConfig
from trainer.data.rows import read_dataset, read_eval_set

sys.path.append(BENCHMARKS := str(Path(__file__).parents[4] / "benchmarks"))
import countdown

sys.path.remove(BENCHMARKS)

PROMPT = re.compile(r"numbers (\d+) (\d+) (\d+) target (\d+) = ")


def parse_item(prompt: str) -> countdown.Item:
    *numbers, target = map(int, PROMPT.fullmatch(prompt).groups())
    return countdown.Item(numbers=tuple(sorted(numbers)), target=target)


def test_the_committed_files_are_those_of_the_generator():
    assert list(read_dataset(countdown.DATASET).rows) == countdown.tasks()
    assert [dict(row) for row in read_eval_set(countdown.EVAL_SET).rows] == countdown.eval_items()


def test_start_tasks_and_evaluation_share_no_item():
    tasks = {parse_item(row["prompt"]) for row in read_dataset(countdown.DATASET).rows}
    held_out = {parse_item(item["prompt"]) for item in read_eval_set(countdown.EVAL_SET).rows}
    start = {parse_item(row["prompt"]) for row in countdown.solved(countdown.items("start"), 2000, seed=0)}
    assert (len(tasks), len(held_out)) == (countdown.TASKS, countdown.EVAL_ITEMS)
    assert [{item.split for item in each} for each in (tasks, held_out, start)] == [{"tasks"}, {"held_out"}, {"start"}]


def test_the_reward_is_for_solutions_of_the_item():
    [reward] = build_rewards(["countdown"], Scoring(answer="whole"), file="c")

    def score(row: dict, text: str) -> float:
        return reward.score(Attempt(prompt=row["prompt"], text=text, row=row, finished=True))

    for row, other in itertools.pairwise(countdown.tasks()[:500]):
        [text] = countdown.solutions(parse_item(row["prompt"]))[:1]
        assert (score(row, text), score(other, text)) == (1.0, 0.0)
    for item, row in countdown.held_out_tasks():
        assert {score(row, text) for text in countdown.solutions(item)} == {1.0}


def build_config(**data):
    base = Config(model=ModelConfig(name="tiny-gpt2"))
    return changed(base, data={**data, "max_length": 34}, mesh={"device": "cpu", "devices": 1})


def test_solved_rows_are_learned_and_tasks_are_refused(tmp_path):
    rows = countdown.write_rows(tmp_path / "rows.jsonl", countdown.solved(countdown.items("start"), 8, seed=0))
    data = inputs_of(build_config(dataset=str(rows)))[1]
    assert data.scoring.answer == "whole"
    problems = catch_problems(inputs_of, build_config(dataset=countdown.DATASET))
    [problem] = [each for each in problems if each.code == "TP908"]
    assert (problem.line, problem.what) == (1, "Row 0 is a task. There are 4799 more like it.")


def test_a_task_of_a_foreign_file_keeps_its_task_and_answer(tmp_path):
    row = {"prompt": "2 + 2 = ", "task": {"kind": "mine"}, "final_answer": "4", "id": 7}
    path = row_file(tmp_path / "tasks.jsonl", row)
    del row["id"]
    assert list(read_dataset(path).rows) == [row]
