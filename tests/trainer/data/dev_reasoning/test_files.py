"""The committed files are what the generator writes, follow their schemas, and keep training and evaluation apart."""

import json
from collections import Counter

import pytest
from trainer.data.dev_reasoning.__main__ import main
from trainer.data.dev_reasoning.stories import verify_two_step_story

from schemas.validate import check_value
from trainer.data.builtin import FOLDER
from trainer.data.builtin.reasoning import SHARES, prompt_key, solve

NAMES = {
    "dev-reasoning-v2.jsonl": 550,
    "dev-stories-v1.jsonl": 100,
    "eval_v1.jsonl": 50,
    "eval_v2.jsonl": 100,
    "eval_stories_v1.jsonl": 100,
}
EVAL_SETS = ("eval_v1.jsonl", "eval_v2.jsonl", "eval_stories_v1.jsonl")


def rows_of(name):
    return [json.loads(line) for line in (FOLDER / name).read_text(encoding="utf-8").splitlines()]


def test_the_generator_rewrites_the_committed_bytes(tmp_path):
    main(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(NAMES)
    for name in NAMES:
        assert (tmp_path / name).read_bytes() == (FOLDER / name).read_bytes()


@pytest.mark.parametrize("name", NAMES)
def test_rows_follow_their_schema(name):
    kind = "eval_item" if name in EVAL_SETS else "dataset_row"
    rows = rows_of(name)
    assert len(rows) == NAMES[name]
    assert [problem for row in rows for problem in check_value(kind, row, file=name)] == []


@pytest.mark.parametrize("name", NAMES)
def test_every_answer_is_verified_by_a_program(name):
    rows = rows_of(name)
    assert [solve(row["prompt"]) for row in rows] == [row.get("expected") or row["final_answer"] for row in rows]


def test_no_prompt_occurs_twice_in_or_between_files():
    keys = Counter(prompt_key(row["prompt"]) for name in NAMES for row in rows_of(name))
    assert [key for key, count in keys.items() if count > 1] == []


@pytest.mark.parametrize("name", [name for name in NAMES if name not in EVAL_SETS])
def test_steps_are_counted_from_zero(name):
    for row in rows_of(name):
        assert [step["i"] for step in row["steps"]] == list(range(len(row["steps"])))


def test_evaluation_items_are_labelled_and_in_their_shares():
    items = rows_of("eval_v2.jsonl")
    assert {item["section"] for item in items} == {"core", "applied", "edge"}
    assert {item["difficulty"] for item in items} == {"easy", "medium", "hard"}
    shares = Counter()
    for kind, share in SHARES:
        shares[kind.category] += share
    assert Counter(item["category"] for item in items) == shares
    assert shares["arithmetic"] >= 30
    assert len({item["id"] for name in EVAL_SETS for item in rows_of(name)}) == 250


def test_a_set_of_stories_holds_nothing_else_and_no_other_file_holds_a_story():
    stories = {"dev-stories-v1.jsonl", "eval_stories_v1.jsonl"}
    told = {name: {verify_two_step_story(row["prompt"]) is not None for row in rows_of(name)} for name in NAMES}
    assert told == {name: {name in stories} for name in NAMES}
