"""Overlap of training rows with evaluation items, against cases worked by hand and the built-in data."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from evidence.scores.overlap import Overlap, find_overlap, row_texts, split_words
from trainer.data.builtin.reasoning import generate_rows

CASES = yaml.safe_load(Path("tests/cases/scores/overlap.yaml").read_text("utf-8"))

DATA = Path(__file__).parents[3] / "trainer" / "data" / "builtin"

APPLES = CASES["apples"]
LONG = CASES["long"]


def of_rows(items: list[dict[str, Any]], *rows: tuple[str, str]) -> Overlap:
    return find_overlap(items, [((asked,), learned) for asked, learned in rows])


@pytest.mark.parametrize(("text", "words"), CASES["words"])
def test_spelling_does_not_count_and_figures_do(text: str, words: str) -> None:
    assert " ".join(split_words(text)) == words


def test_a_question_in_other_spelling_is_the_same() -> None:
    asked = "ann has 12 apples and eats 5 of them -- how many apples are left in her basket"
    found = of_rows([APPLES, LONG], (asked, "8"), (f" {asked}?\n", "8"), ("What is 2 + 2?", "4"))
    assert found == Overlap(rows_same=2, rows_near=0, items_same=("apples",), items_near=())


@pytest.mark.parametrize(
    ("asked", "learned", "is_near"),
    CASES["near"],
    ids=["in other words", "another number", "another answer", "no half in a row"],
)
def test_near_is_half_of_an_item_with_its_figures_and_its_answer(asked: str, learned: str, is_near: bool) -> None:
    assert of_rows([APPLES, LONG], (asked, learned)).items_near == (("apples",) if is_near else ())


def test_of_a_long_item_13_words_in_a_row_are_enough_and_12_are_not() -> None:
    words = split_words(LONG["prompt"])
    assert len(words) == 28
    taught = [f"Tell me: {' '.join(words[3 : 3 + count])}?" for count in (13, 12)]
    assert of_rows([LONG], (taught[0], "The Danube.")).items_near == ("long",)
    assert of_rows([LONG], (taught[1], "The Danube.")).items_near == ()


def test_words_that_two_items_share_are_a_template() -> None:
    twin = APPLES | {"id": "twin", "prompt": APPLES["prompt"].replace("in her basket", "on the old table")}
    taught = ("Ann has 12 apples and eats 5 of them. How many?", "7")
    assert of_rows([APPLES], taught).items_near == ("apples",)
    assert of_rows([APPLES, twin], taught).items_near == ()


def test_words_of_everyday_language_do_not_count() -> None:
    item = {"id": "way", "prompt": "What is the best way to cook rice for two?", "expected": "steam"}
    others = [(f"What is the best way to do thing number {number}?", "try") for number in "abcdefghijkl"]
    near = ("What is the best way to get steam?", "steam")
    assert of_rows([item], *others[:10], near).items_near == ("way",)
    assert of_rows([item], *others[:11], near).items_near == ()


def test_items_of_the_same_words_are_all_named_and_a_short_one_is_compared_whole() -> None:
    items = [{"id": str(number), "prompt": "Is ice cold?", "expected": "yes"} for number in range(2)]
    found = of_rows(items, ("is ice cold", "yes"), ("Tell me, is ice cold now?", "yes"))
    assert found == Overlap(rows_same=1, rows_near=0, items_same=("0", "1"), items_near=())


def test_what_a_row_of_each_shape_asks_and_teaches() -> None:
    talk = [{"role": role, "content": role[0]} for role in ("system", "user", "assistant", "user", "assistant")]
    trace = {"prompt": "p", "steps": [{"content": "s"}], "final_answer": "f"}
    assert row_texts({"messages": talk}) == (("u", "s\nu\na\nu"), "a")
    assert row_texts(trace) == (("p",), "s\nf")
    assert row_texts({"prompt": "p", "completion": "c"}) == (("p",), "c")
    assert row_texts({"text": "t"}) == (("t",), "t")
    assert row_texts({"begun": "b", "completion": "c"}) == (("b",), "c")
    assert row_texts({"chosen": trace, "rejected": trace}) == (("p",), "s\nf")
    assert row_texts({"prompt": "p", "chosen": "c", "rejected": "r"}) == (("p",), "c")


def lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (DATA / f"{name}.jsonl").read_text("utf-8").splitlines()]


@pytest.mark.parametrize(
    ("dataset", "eval_set", "near"),
    [("dev-reasoning-v2", "eval_v2", 1), ("dev-reasoning-v2", "eval_v1", 0), ("dev-stories-v1", "eval_stories_v1", 2)],
)
def test_the_rows_of_the_demos_ask_nothing_that_is_evaluated(dataset: str, eval_set: str, near: int) -> None:
    rows, items = lines(dataset), lines(eval_set)
    own = frozenset(row["prompt"] for row in rows)
    rows += generate_rows(dataset, 3_000 if "stories" in dataset else 12_000, 1_000_003, exclude_prompts=own)
    found = find_overlap(items, map(row_texts, rows))
    assert (found.rows_same, len(found.items_near)) == (0, near)
    again = of_rows(items, *((item["prompt"].upper().replace(" ", "  "), item["expected"]) for item in items))
    polite = of_rows(
        items, *((f"Please: {item['prompt'].rstrip('?.')}, would you?", item["expected"]) for item in items)
    )
    assert (len(again.items_same), len(polite.items_near)) == (len(items), len(items))
