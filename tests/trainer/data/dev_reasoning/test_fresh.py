"""A judge's items: the seed decides them, none is known, and the kinds have their shares."""

from collections import Counter

import pytest

from trainer.data.builtin.reasoning import at_most, eval_prompts, fresh_items, prompt_key, solve
from trainer.data.rows import read_dataset, read_eval_set


def test_the_seed_decides_and_every_answer_is_right():
    first, left_out = fresh_items("eval_v2", "mine.jsonl", 60, 5, training=())
    assert first == fresh_items("eval_v2", "mine.jsonl", 60, 5, training=())[0]
    assert first != fresh_items("eval_v2", "mine.jsonl", 60, 6, training=())[0]
    assert left_out == 0
    assert len({prompt_key(item["prompt"]) for item in first}) == 60
    assert [item["expected"] for item in first] == [solve(item["prompt"]) for item in first]


def test_none_is_of_an_evaluation_set_or_of_training():
    training = [row["prompt"] for row in read_dataset("dev-reasoning-v2").rows]
    # The committed rows were drawn under this seed, so all of them come up and are left out.
    items, left_out = fresh_items("eval_v2", "dev-reasoning-v2", 50, 7, training=training)
    known = {prompt_key(prompt) for prompt in (*training, *eval_prompts())}
    assert not known & {prompt_key(item["prompt"]) for item in items}
    assert left_out > 500


def test_the_kinds_have_the_shares_of_the_set():
    items, _ = fresh_items("eval_v2", "x", 100, 1, training=())
    own = Counter(item["category"] for item in read_eval_set("eval_v2").rows)
    drawn = Counter(item["category"] for item in items)
    assert all(abs(drawn[name] - own[name]) <= 1 for name in own | drawn)


def test_the_dataset_decides_where_the_set_is_not_built_in():
    items, _ = fresh_items("mine.jsonl", "dev-stories-v1", 3, 1, training=())
    assert {item["section"] for item in items} == {"applied"}
    assert fresh_items(None, "mine.jsonl", 3, 1, training=()) is None


def test_more_than_there_are_is_refused():
    with pytest.raises(ValueError, match="no new prompt left after 80 draws"):
        list(at_most(80, iter([None] * 100)))
    asked = [item["prompt"] for item in fresh_items("eval_v2", "x", 40, 1, training=())[0]]
    items, left_out = fresh_items("eval_v2", "x", 40, 1, training=asked)
    assert not {item["prompt"] for item in items} & set(asked)
    assert left_out >= 40
