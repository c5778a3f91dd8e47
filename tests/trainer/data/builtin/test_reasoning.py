"""The generator: committed bytes, answers solved a second time, true lines, disjoint prompts, shares of kinds."""

import json
import random
import re
from fractions import Fraction
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reasoning_solver import solve

from trainer.data.builtin import FOLDER, reasoning
from trainer.data.builtin.reasoning import DIFFICULTIES, SHARES, STORIES, fresh_items, generate_rows, prompt_key
from trainer.data.rows import read_dataset

EVAL_SETS = {"eval_v1": (50, 101), "eval_v2": (100, 202), "eval_stories_v1": (100, 303)}
DATASETS = {"dev-reasoning-v2": (550, 7), "dev-stories-v1": (100, 8)}
"""Rows and seed of the committed files."""
KINDS = [kind for kind, _ in (*SHARES, *STORIES)]
NUMBERS = st.integers(0, 9999)


def test_the_generator_writes_the_committed_bytes():
    """No two rows or items of these files have the same `prompt_key`."""
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
        list(islice(reasoning.draw_problems(1, SHARES, excluded_keys=frozenset()), 100_000))
    monkeypatch.setattr(reasoning, "MAX_DRAWS_PER_ITEM", 0)
    with pytest.raises(ValueError, match="exhausted after 0 draws"):
        fresh_items("eval_v2", "x", 40, 1, training=())
