"""Fisher's exact test, by hand, by counting every outcome, and as a judge meets it."""

from itertools import combinations

import pytest

from evidence.scores.claims import ExactMatch, chance_of_less


def test_by_hand():
    assert chance_of_less(ExactMatch(correct=3, n=4), ExactMatch(correct=1, n=4)) == pytest.approx(17 / 70)


@pytest.mark.parametrize(("stated", "found"), [((3, 5), (1, 4)), ((5, 5), (0, 3)), ((0, 4), (2, 4)), ((2, 3), (2, 3))])
def test_by_counting_every_way_to_deal_the_right_answers(stated: tuple[int, int], found: tuple[int, int]):
    """Each choice of which items are right is equally likely."""
    items, right = stated[1] + found[1], stated[0] + found[0]
    deals = [sum(item < found[1] for item in chosen) for chosen in combinations(range(items), right)]
    expected = sum(dealt <= found[0] for dealt in deals) / len(deals)
    claimed = ExactMatch(correct=stated[0], n=stated[1])
    assert chance_of_less(claimed, ExactMatch(correct=found[0], n=found[1])) == pytest.approx(expected)


def test_a_higher_score_speaks_against_nobody():
    assert chance_of_less(ExactMatch(correct=0, n=50), ExactMatch(correct=0, n=40)) == 1
    assert chance_of_less(ExactMatch(correct=60, n=100), ExactMatch(correct=45, n=50)) > 0.99


def test_a_claimed_99_percent_with_half_right_is_beyond_chance():
    assert chance_of_less(ExactMatch(correct=99, n=100), ExactMatch(correct=25, n=50)) < 1e-10
    assert chance_of_less(ExactMatch(correct=83, n=100), ExactMatch(correct=40, n=50)) > 0.3


def test_a_thousand_items_do_not_overflow():
    assert chance_of_less(ExactMatch(correct=1300, n=1319), ExactMatch(correct=10, n=5000)) == 0.0
