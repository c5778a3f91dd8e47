"""Every kind at every difficulty: its answer is what its prompt asks for, by a way of its own."""

import random

import pytest

from trainer.data.builtin.reasoning import DIFFICULTIES, SHARES, STORIES, solve

DRAWS = 400


@pytest.mark.parametrize("difficulty", DIFFICULTIES)
@pytest.mark.parametrize("kind", [kind for kind, _ in (*SHARES, *STORIES)], ids=lambda kind: kind.name)
def test_the_answer_is_verified_from_the_prompt_alone(kind, difficulty):
    rng = random.Random(5)
    for _ in range(DRAWS):
        problem = kind.draw(rng, difficulty)
        assert solve(problem.prompt) == problem.answer
        assert problem.steps
        texts = [problem.prompt, problem.answer, *(step.content for step in problem.steps)]
        assert not any("\n" in text or "<" in text.replace(" < ", "") or text != text.strip() for text in texts)


@pytest.mark.parametrize("kind", [kind for kind, _ in (*SHARES, *STORIES)], ids=lambda kind: kind.name)
def test_the_same_state_draws_the_same_problem(kind):
    assert kind.draw(random.Random(3), "hard") == kind.draw(random.Random(3), "hard")


@pytest.mark.parametrize(
    ("prompt", "answer"),
    [
        ("What is 47 + 38?", "85"),
        ("Add 999 and 1.", "1000"),
        ("Subtract 17 from 52.", "35"),
        ("What is 17 - 52?", "-35"),
        ("Multiply 47 by 6.", "282"),
        ("Ben has 47 coins and gives away 38. How many coins are left?", "9"),
        ("Ana fills 6 boxes with 47 cards each. How many cards is that?", "282"),
        ("Is 458 smaller than 473?", "yes"),
        ("Which is larger, 458 or 473?", "473"),
        ("Which is larger, 45 or 45?", "equal"),
        ("What date is 12 days after 27 March?", "8 April"),
        ("What date is 25 days after 30 November?", "25 December"),
        ("How many minutes from 9:40 to 10:15?", "35"),
        ("What time is 35 minutes after 9:40?", "10:15"),
        ("How many cm are 37 m?", "3700"),
        ("How many m are 3700 cm?", "37"),
        ("How many days are 12 weeks?", "84"),
        ("How many seconds are 12 minutes?", "720"),
        ("Is 2024 a leap year?", "yes"),
        ("Is 2023 a leap year?", "no"),
        ("What is 7 × 0?", "0"),
        ("Mia has 52 coins, buys 24 more and gives away 17. How many coins does Mia have?", "59"),
        ("Ben has 20 books, gives away 19 and buys 30 more. How many books does Ben have?", "31"),
        ("Ben has 20 books, gives away 19 and buys 30 more. How many cards does Ben have?", None),
        ("What is the meaning of life?", None),
        ("What is 47 + 38", None),
        ("How many kg are 37 m?", None),
    ],
)
def test_answers_known_by_hand(prompt, answer):
    assert solve(prompt) == answer
