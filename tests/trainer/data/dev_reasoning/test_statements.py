"""Reasoning is true: every line of the committed rows and of many fresh ones is read back and checked."""

import pytest
from statements import is_handed_on, is_true, untrue

from trainer.data.builtin.reasoning import DATASET_SHARES, generate_rows
from trainer.data.rows import read_dataset


@pytest.mark.parametrize("dataset", DATASET_SHARES)
def test_every_line_of_the_dataset_is_true(dataset):
    assert [line for row in read_dataset(dataset).rows for line in untrue(row)] == []


@pytest.mark.parametrize("dataset", DATASET_SHARES)
def test_every_line_of_fresh_rows_is_true(dataset):
    fresh = generate_rows(dataset, 3000, 31, exclude_prompts=frozenset())
    assert [line for row in fresh for line in untrue(row)] == []


@pytest.mark.parametrize(
    "plans",
    [
        ["Total: 52 + 24.", "Left: 52 - 17."],  # forgets what was bought
        ["Left: 52 - 17.", "Total: 35 + 24."],  # the other order
        ["Total: 52 + 24."],
    ],
)
def test_the_reader_refuses_a_story_told_otherwise(plans):
    prompt = "Mia has 52 coins, buys 24 more and gives away 17. How many coins does Mia have?"
    assert untrue({"prompt": prompt, "steps": [{"content": line} for line in plans]}) == plans


@pytest.mark.parametrize(
    ("line", "prompt"),
    [
        ("Ones: 7 + 8 = 16, carry 1.", "What is 47 + 38?"),
        ("Ones: 7 + 8 = 15, carry 2.", "What is 47 + 38?"),
        ("Ones: 12 - 7 = 5.", "What is 52 - 17?"),
        ("Ones: 8 - 7 = 1, borrow 1.", "What is 58 - 17?"),
        ("Tens: 4 × 6 = 24, 24 + 4 = 27.", "What is 47 × 6?"),
        ("Hundreds: 4 > 4.", "Which is larger, 473 or 458?"),
        ("April has 31 days.", "What date is 12 days after 14 April?"),
        ("1 km = 100 m.", "How many m are 3 km?"),
        ("10:15 is 9:00 + 65.", "How many minutes from 9:40 to 10:15?"),
        ("75 - 60 = 15: 9:15.", "What time is 35 minutes after 9:40?"),
        ("The second is larger.", "Which is larger, 473 or 458?"),
        ("Adding 0 changes nothing.", "What is 3 × 0?"),
        ("Total: 47 - 38.", "Mia has 47 coins and buys 38 more. How many coins does Mia have?"),
        ("Trust me.", "What is 47 + 38?"),
    ],
)
def test_the_reader_refuses_what_is_false_or_unknown(line, prompt):
    assert not is_true(line, prompt)


@pytest.mark.parametrize(
    ("line", "following"),
    [
        ("Ones: 7 + 8 = 15.", "Tens: 4 + 3 = 7."),
        ("Ones: 7 + 8 = 15, carry 1.", "Tens: 4 + 3 = 7."),
        ("Ones: 3 + 4 = 7.", "Tens: 4 + 3 + 1 = 8."),
        ("Ones: 12 - 7 = 5, borrow 1.", "Tens: 5 - 1 = 4."),
        ("Ones: 8 - 7 = 1.", "Tens: 5 - 1 - 1 = 3."),
        ("Ones: 7 × 6 = 42, carry 4.", "Tens: 4 × 6 = 24."),
        ("Ones: 7 × 6 = 42, carry 4.", "Tens: 4 × 6 = 24, 24 + 3 = 27."),
    ],
)
def test_the_reader_refuses_a_lost_carry_or_loan(line, following):
    assert not is_handed_on(line, following)
