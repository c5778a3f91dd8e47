"""Countdown tasks: solutions by Python's own arithmetic, completeness by brute force, and nothing held out leaks."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import sys
from fractions import Fraction
from pathlib import Path

import pytest
from tasks import inputs_of

from evidence.rewards import Attempt, build_rewards
from evidence.scores.reading import Scoring
from schemas.problems import ProblemError
from trainer.config.load import load_config
from trainer.data.builtin import FOLDER
from trainer.data.rows import read_dataset, read_eval_set

sys.path.append(FOLDER_OF_GENERATOR := str(Path(__file__).parents[4] / "benchmarks"))  # for this import only
import countdown

sys.path.remove(FOLDER_OF_GENERATOR)

PROMPT = re.compile(r"numbers (\d+) (\d+) (\d+) target (\d+) = ")


def parts(prompt: str) -> tuple[tuple[int, ...], int]:
    *numbers, target = map(int, PROMPT.fullmatch(prompt).groups())
    return tuple(sorted(numbers)), target


def exactly(expression: str) -> Fraction:
    return Fraction(eval(re.sub(r"(\d+)", r"Fraction(\1)", expression), {"Fraction": Fraction}))


def test_the_committed_files_are_those_of_the_generator():
    for name, text in countdown.file_texts().items():
        assert (FOLDER / name).read_text(encoding="utf-8") == text


def test_solutions_use_each_number_once_and_reach_the_target():
    for item in countdown.all_items()[::7]:
        for text in countdown.solutions(item):
            assert tuple(sorted(map(int, re.findall(r"\d+", text)))) == item.numbers
            assert exactly(text) == item.target


@pytest.mark.parametrize("numbers", [(2, 3, 7), (1, 1, 12), (4, 6, 9), (5, 5, 5)])
def test_no_solution_is_missing_and_no_two_numbers_suffice(numbers):
    # By another way: every order, both places for brackets, computed with Fractions.
    reached, by_two = set(), set(map(Fraction, numbers))
    for a, b, c in itertools.permutations(numbers):
        for one in "+-*/":
            by_two.add(exactly(f"{a}{one}{b}"))
            for other in "+-*/":
                for text in (f"({a}{one}{b}){other}{c}", f"{a}{one}({b}{other}{c})"):
                    try:
                        reached.add(exactly(text))
                    except ZeroDivisionError:
                        continue
    right = {int(value) for value in reached - by_two if value.denominator == 1 and 1 <= value <= 60}
    assert {item.target for item in countdown.all_items() if item.numbers == numbers} == right


def test_the_worked_example():
    item = countdown.CountdownItem(numbers=(2, 3, 7), target=13)
    assert countdown.solutions(item) == ["2*3+7", "3*2+7", "7+2*3", "7+3*2"]


def test_the_hash_of_an_item_decides_whether_it_is_held_out():
    items = countdown.all_items()
    held_out = [item for item in items if item.is_held_out]
    assert 0.07 < len(held_out) / len(items) < 0.13
    [a, b, c] = held_out[0].numbers
    digest = hashlib.sha256(f"{a} {b} {c} {held_out[0].target}".encode()).hexdigest()
    assert int(digest, 16) % 10 == 0


def test_no_training_row_is_an_evaluation_item_in_another_order():
    held_out = {parts(item["prompt"]) for item in read_eval_set("eval_countdown_v1").rows}
    for name in ("countdown-v1", "countdown-solved-v1"):
        rows = read_dataset(name).rows
        assert len({row["prompt"] for row in rows}) == len(rows)
        assert held_out.isdisjoint(parts(row["prompt"]) for row in rows)
    assert len(held_out) == len(read_eval_set("eval_countdown_v1").rows) == 271


def test_the_reward_pays_for_every_solution_and_only_for_the_items_own():
    [reward] = build_rewards(["countdown"], Scoring(answer="whole"), file="c")
    rows = read_dataset("countdown-v1").rows
    solved = {parts(row["prompt"]): row["completion"] for row in read_dataset("countdown-solved-v1").rows}
    for row, other in itertools.pairwise(rows[:500]):
        text = solved[parts(row["prompt"])]
        assert reward.score(Attempt(prompt=row["prompt"], text=text, row=row, finished=True)) == 1.0
        if parts(other["prompt"]) != parts(row["prompt"]):
            assert reward.score(Attempt(prompt="", text=text, row=other, finished=True)) == 0.0
    for item in read_eval_set("eval_countdown_v1").rows:
        numbers, target = parts(item["prompt"])
        row = {"prompt": item["prompt"], "task": {"kind": "countdown", "numbers": list(numbers), "target": target}}
        for text in item["expected"]:
            assert reward.score(Attempt(prompt="", text=text, row=row, finished=True)) == 1.0


def config_of(tmp_path, **data):
    path = tmp_path / "c.yaml"
    document = {"model": {"name": "tiny-gpt2"}, "data": data, "batch": {"microbatch_size": 2}, "limits": {"steps": 2}}
    path.write_text(json.dumps(document | {"mesh": {"device": "cpu", "devices": 1}}), encoding="utf-8")
    return load_config(path)


def test_solved_rows_are_learned_and_tasks_are_refused(tmp_path):
    config = config_of(tmp_path, dataset="countdown-solved-v1", max_length=32)
    data = inputs_of(config)[1]
    assert data.scoring.answer == "whole"
    with pytest.raises(ProblemError) as raised:
        inputs_of(config_of(tmp_path, dataset="countdown-v1", max_length=32))
    [problem] = [each for each in raised.value.problems if each.code == "TP908"]
    assert (problem.line, problem.what) == (1, "Row 0 is a task; so are 2,619 more.")


def test_a_task_of_a_foreign_file_keeps_its_task_and_answer(tmp_path):
    row = {"prompt": "2 + 2 = ", "task": {"kind": "mine"}, "final_answer": "4", "id": 7}
    path = tmp_path / "tasks.jsonl"
    path.write_text(json.dumps(row) + "\n", encoding="utf-8")
    del row["id"]
    assert list(read_dataset(str(path)).rows) == [row]


def test_the_start_is_taught_every_order_of_the_training_items_and_no_row_twice():
    rows = countdown.start_rows()
    assert len({(row["prompt"], row["completion"]) for row in rows}) == len(rows)
    orders = {parts(row["prompt"]): set() for row in read_dataset("countdown-v1").rows}
    for row in rows:
        orders[parts(row["prompt"])].add(row["prompt"])
    assert all(len(found) == len(set(itertools.permutations(item[0]))) for item, found in orders.items())


@pytest.mark.parametrize("made", [countdown.solved_rows, countdown.start_rows])
def test_the_solver_makes_rows_of_items_that_are_not_held_out(made):
    rows = made()
    assert not any(
        countdown.CountdownItem(numbers=n, target=t).is_held_out for n, t in (parts(r["prompt"]) for r in rows)
    )
    assert all(exactly(row["completion"]) == parts(row["prompt"])[1] for row in rows[::41])
