"""Built-in data and tokenizer: committed bytes, answers solved a second time, true lines, splits that share no item."""

import itertools
import json
import random
import re
import sys
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from model_folders import row_file
from reasoning_solver import solve
from refusals import catch_problems
from tasks import inputs_of
from train_tokenizer import main
from transformers import PreTrainedTokenizerFast

from evidence.rewards import Attempt, build_rewards
from evidence.scores.reading import Scoring
from trainer.config.tree import Config, ModelConfig
from trainer.data.builtin import FOLDER, reasoning
from trainer.data.builtin.reasoning import DIFFICULTIES, SHARES, STORIES, fresh_items, generate_rows, prompt_key
from trainer.data.rows import read_dataset, read_eval_set
from trainer.model.source import BUILTIN_TOKENIZER

sys.path.append(BENCHMARKS := str(Path(__file__).parents[4] / "benchmarks"))
import countdown

sys.path.remove(BENCHMARKS)

EVAL_SETS = {"eval_v1": (50, 101), "eval_v2": (100, 202), "eval_stories_v1": (100, 303)}
DATASETS = {"dev-reasoning-v2": (550, 7), "dev-stories-v1": (100, 8)}
"""Rows and seed of the committed files."""
KINDS = [kind for kind, _ in (*SHARES, *STORIES)]
NUMBERS = st.integers(0, 9999)


def test_the_generator_writes_the_committed_bytes():
    """The files share no `prompt_key`."""
    taken, files = frozenset(), {}
    for name, (count, seed) in EVAL_SETS.items():
        shares = reasoning.EVAL_SHARES[name]
        problems = reasoning.take_shares(reasoning.draw_problems(seed, shares, excluded_keys=taken), shares, count)
        files[name] = [reasoning.to_item(name, number, drawn) for number, drawn in enumerate(problems, 1)]
        taken |= {prompt_key(item["prompt"]) for item in files[name]}
    files |= {name: generate_rows(name, *given, exclude_prompts=taken) for name, given in DATASETS.items()}
    for name, rows in files.items():
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        assert text.encode() == (FOLDER / f"{name}.jsonl").read_bytes()


@pytest.mark.parametrize("difficulty", DIFFICULTIES)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_drawn_answers_are_right(kind, difficulty):
    rng = random.Random(5)
    for _ in range(400):
        problem = kind.draw(rng, difficulty)
        assert solve(problem.prompt) == problem.answer
        assert problem.steps
        texts = [problem.prompt, problem.answer, *(content for _, content in problem.steps)]
        assert not any("\n" in text or "<" in text.replace(" < ", "") or text != text.strip() for text in texts)
    assert kind.draw(random.Random(3), difficulty) == kind.draw(random.Random(3), difficulty)


def column_digits(lines, sign):
    """Both digits of every column, without a borrowed ten."""
    pairs = [re.match(rf"\w+: (\d+) {re.escape(sign)} (\d+)", line).groups() for _, line in lines]
    return [(int(x) % 10, int(y)) for x, y in pairs]


def compose(digits):
    return sum(digit * 10**place for place, digit in enumerate(digits))


@given(NUMBERS, NUMBERS, st.integers(0, 9))
def test_worked_columns_have_the_digits_of_their_numbers(a, b, digit):
    high, low = max(a, b), min(a, b)
    for work, sign, expected in ((reasoning.add, "+", high + low), (reasoning.subtract, "-", high - low)):
        lines, result = work(high, low)
        digits = column_digits(lines, sign)
        assert result == str(expected)
        assert (compose(x for x, _ in digits), compose(y for _, y in digits)) == (high, low)
    lines, result = reasoning.multiply(a, digit)
    digits = column_digits(lines, "×")
    assert result == str(a * digit)
    assert (compose(x for x, _ in digits), {y for _, y in digits}) == (a, {digit})


CLAIM = re.compile(r"(-?\(?\d[-+×/()\d ]*) ([=<>]) (?=(-?\(?\d[-+×/()\d ]*))")


def holds(left, sign, right):
    texts = (re.sub(r"\d+", r"Fraction('\g<0>')", text.replace("×", "*")) for text in (left, right))
    one, other = (eval(text, {"Fraction": Fraction}) for text in texts)
    return {"=": one == other, "<": one < other, ">": one > other}[sign]


@pytest.mark.parametrize("dataset", reasoning.DATASET_SHARES)
def test_what_a_line_claims_is_true(dataset):
    fresh = generate_rows(dataset, 3000, 31, exclude_prompts=frozenset())
    lines = [step["content"] for row in (*read_dataset(dataset).rows, *fresh) for step in row["steps"]]
    claims = [claim for line in lines for claim in CLAIM.findall(line)]
    assert len(claims) > 3000
    assert [claim for claim in claims if not holds(*claim)] == []


def test_generated_rows_are_new_and_follow_from_the_seed():
    committed = frozenset(row["prompt"] for row in read_dataset("dev-reasoning-v2").rows)
    fresh = generate_rows("dev-reasoning-v2", 5000, 11, exclude_prompts=committed)
    keys = {prompt_key(row["prompt"]) for row in fresh}
    assert len(keys) == len(fresh) == 5000
    assert keys.isdisjoint({prompt_key(prompt) for prompt in committed | reasoning.eval_prompts()})
    assert generate_rows("dev-reasoning-v2", 100, 11, exclude_prompts=committed) == fresh[:100]
    assert generate_rows("dev-reasoning-v2", 100, 12, exclude_prompts=committed) != fresh[:100]
    arithmetic = sum(row["meta"]["category"] == "arithmetic" for row in fresh) / len(fresh)
    assert arithmetic == pytest.approx(0.40, abs=0.03)


def test_exhaustion_is_an_error(monkeypatch):
    monkeypatch.setattr(reasoning, "MAX_MISSES", 2)
    with pytest.raises(ValueError, match=r"^seed 1: no new prompt in 2 draws, after \d+ prompts drawn or excluded\.$"):
        list(itertools.islice(reasoning.draw_problems(1, SHARES, excluded_keys=frozenset()), 100_000))
    monkeypatch.setattr(reasoning, "MAX_DRAWS_PER_ITEM", 0)
    with pytest.raises(ValueError, match="exhausted after 0 draws"):
        fresh_items("eval_v2", "x", 40, 1, training=())


PROMPT = re.compile(r"numbers (\d+) (\d+) (\d+) target (\d+) = ")


def parse_item(prompt: str) -> countdown.Item:
    *numbers, target = map(int, PROMPT.fullmatch(prompt).groups())
    return countdown.Item(numbers=tuple(sorted(numbers)), target=target)


def test_the_committed_files_of_countdown_are_those_of_its_generator():
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

    held_out = list(countdown.held_out_tasks())
    for (item, row), (_, other) in itertools.pairwise(held_out):
        assert {score(row, text) for text in countdown.solutions(item)} == {1.0}
        assert {score(other, text) for text in countdown.solutions(item)} == {0.0}


def test_solved_rows_are_learned_and_tasks_are_refused(tmp_path):
    config = Config(model=ModelConfig(name="tiny-gpt2")).changed(mesh={"device": "cpu", "devices": 1})
    rows = countdown.write_rows(tmp_path / "rows.jsonl", countdown.solved(countdown.items("start"), 8, seed=0))
    assert inputs_of(config.changed(data={"dataset": str(rows), "max_length": 34}))[1].scoring.answer == "whole"
    problems = catch_problems(inputs_of, config.changed(data={"dataset": countdown.DATASET, "max_length": 34}))
    [problem] = [each for each in problems if each.code == "TP908"]
    assert (problem.line, problem.what) == (1, "Row 0 is a task. There are 4799 more like it.")


def test_a_task_of_a_foreign_file_keeps_its_task_and_answer(tmp_path):
    row = {"prompt": "2 + 2 = ", "task": {"kind": "mine"}, "final_answer": "4", "id": 7}
    path = row_file(tmp_path / "tasks.jsonl", row)
    del row["id"]
    assert list(read_dataset(path).rows) == [row]


TOKENIZER = PreTrainedTokenizerFast.from_pretrained(BUILTIN_TOKENIZER)


def tokens(text):
    return TOKENIZER.encode(text, add_special_tokens=False)


@given(st.text() | st.text(alphabet="0123456789 +-×=.,\n<>/answer"))
def test_any_text_comes_back_exactly(text):
    assert TOKENIZER.decode(tokens(text)) == text


@given(st.text(alphabet="0123456789 +-=abc", min_size=1))
def test_every_digit_is_a_token_of_its_own(text):
    pieces = [TOKENIZER.decode([token]) for token in tokens(text)]
    assert all(len(piece) == 1 for piece in pieces if any(letter.isdigit() for letter in piece))


def test_training_the_tokenizer_again_gives_the_committed_bytes(tmp_path):
    main(tmp_path)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["special_tokens_map.json", "tokenizer.json", "tokenizer_config.json"]
    for name in names:
        assert (tmp_path / name).read_bytes() == (BUILTIN_TOKENIZER / name).read_bytes()
