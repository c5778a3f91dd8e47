"""Headroom: what there is to gain from rewards."""

import pytest

from evidence.rewards import build_rewards, parse_terms, pass_rates
from evidence.scores.reading import Scoring
from trainer.loop.headroom import decisive, headroom_problems, in_words, is_right

RIGHT = [0, 1, 4]
FOUND = {"samples": 4, "right": RIGHT, **pass_rates(RIGHT, 4), "flat_groups": 2 / 3, "partial": False, "seconds": 1.0}


def test_it_is_said_in_words_with_the_interval_of_prompts():
    said = in_words(FOUND)
    assert said.startswith("Before the first step pass@1 is 0.417 (95 % interval ")
    assert said.endswith("and pass@4 0.667, of 3 prompts with 4 completions each; 67% of these groups have no spread")


@pytest.mark.parametrize(
    ("change", "codes"),
    [
        ({}, []),
        ({"pass_1": 0.0, "pass_k": 0.049}, ["TP927"]),
        ({"pass_1": 0.0, "pass_k": 0.051}, []),
        ({"pass_1": 0.0, "pass_k": 0.0, "partial": True}, []),
        ({"pass_1": 0.951, "pass_k": 1.0}, ["TP928"]),
        ({"pass_1": 0.949, "pass_k": 1.0}, []),
    ],
)
def test_nothing_to_reinforce_and_nothing_to_gain(change, codes):
    assert [each.code for each in headroom_problems(FOUND | change, file="run")] == codes


def test_the_reward_of_the_largest_weight_times_range_decides():
    terms = parse_terms("exact + 0.2*format + -0.1*own:long(high=5)", file="")
    rewards = build_rewards(terms, Scoring(), file="", execute=False)
    assert decisive(rewards).name == "exact"
    assert is_right(rewards, {"exact": 1.0, "format": 0.0, "own:long": 5.0})
    assert not is_right(rewards, {"exact": 0.5, "format": 1.0, "own:long": 0.0})
    assert not is_right(rewards, {"exact": None, "format": None, "own:long": None})
