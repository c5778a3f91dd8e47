"""Intervals and tests against SciPy, published tables, enumeration of all outcomes, and simulation."""

import math
import random
import statistics
from itertools import combinations

import numpy as np
import pytest
from scipy import stats
from scipy.stats import binomtest

from evidence.scores.intervals import (
    BY_PROMPT,
    ExactMatch,
    PairedTable,
    clustered_detectable_difference,
    clustered_difference,
    clustered_error,
    clustered_wilson,
    find_clusters,
    fisher_exact_less,
    holm,
    mcnemar_exact,
    mean_interval,
    minimum_detectable_difference,
    paired_difference_interval,
    t_p_value,
    t_quantile,
    wilson_interval,
)

COUNTS = [(0, 1), (1, 1), (0, 10), (8, 10), (10, 10), (29, 30), (50, 100), (1, 1319), (700, 1319)]


@pytest.mark.parametrize(("successes", "n"), COUNTS)
def test_wilson_agrees_with_scipy(successes: int, n: int):
    truth = binomtest(successes, n).proportion_ci(method="wilson")
    assert wilson_interval(successes, n) == pytest.approx((truth.low, truth.high), abs=1e-12)


def test_wilson_as_published():
    # R. G. Newcombe, Statistics in Medicine 17, 1998, p. 857-872, Table I, method 3.
    assert wilson_interval(81, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert wilson_interval(15, 148) == pytest.approx((0.0624, 0.1605), abs=5e-5)
    assert wilson_interval(0, 20) == pytest.approx((0.0, 0.1611), abs=5e-5)
    assert wilson_interval(1, 29) == pytest.approx((0.0061, 0.1718), abs=5e-5)


def test_wilson_never_leaves_the_range_and_always_holds_the_share():
    for n in range(1, 60):
        for successes in range(n + 1):
            low, high = wilson_interval(successes, n)
            assert 0.0 <= low <= successes / n <= high <= 1.0


@pytest.mark.parametrize(("successes", "n"), [(-1, 10), (11, 10), (0, 0)])
def test_wilson_refuses_impossible_counts(successes: int, n: int):
    with pytest.raises(ValueError, match=f"got successes={successes}, n={n}"):
        wilson_interval(successes, n)


@pytest.mark.parametrize(("b", "c"), [(0, 0), (0, 1), (1, 7), (5, 5), (0, 20), (9, 16), (300, 340), (1200, 1300)])
def test_mcnemar_agrees_with_scipys_binomial_test(b: int, c: int):
    truth = binomtest(b, b + c).pvalue if b + c else 1.0
    assert mcnemar_exact(b, c) == pytest.approx(truth, rel=1e-9)
    assert mcnemar_exact(c, b) == mcnemar_exact(b, c)
    assert 0.0 < mcnemar_exact(0, 1000) < 1e-300  # without underflow


def table(b: int, c: int, n: int) -> PairedTable:
    return PairedTable(both=(n - b - c) // 2, only_first=b, only_second=c, neither=(n - b - c) - (n - b - c) // 2)


def test_paired_interval_by_hand():
    # Airway reactivity (M. W. Fagerland, S. Lydersen, P. Laake, Statistics in Medicine 33, 2014) with 1 added to each
    # discordant count: n = 23, b = 2, c = 8, so 6/23 ± 1.96 sqrt(10 - 36/23) / 23.
    airway = PairedTable(both=1, only_first=1, only_second=7, neither=12)
    assert airway.difference == pytest.approx(6 / 21)
    assert paired_difference_interval(airway) == pytest.approx((6 / 23 - 0.24749, 6 / 23 + 0.24749), abs=1e-5)


def test_paired_interval_turns_its_sign_when_the_runs_change_places():
    for b, c, n in [(0, 5, 9), (3, 11, 100), (10, 0, 10), (0, 0, 4)]:
        low, high = paired_difference_interval(table(b, c, n))
        assert paired_difference_interval(table(c, b, n)) == pytest.approx((-high, -low), abs=1e-12)
        assert -1.0 <= low <= table(b, c, n).difference <= high <= 1.0


def outcomes(n: int, only_first: float, only_second: float):
    """Yield (b, c, probability) of every outcome of n items that is not negligible."""
    for b in range(n + 1):
        for c in range(n + 1 - b):
            ways = math.lgamma(n + 1) - math.lgamma(b + 1) - math.lgamma(c + 1) - math.lgamma(n - b - c + 1)
            shares = ((b, only_first), (c, only_second), (n - b - c, 1 - only_first - only_second))
            if any(count and share <= 0 for count, share in shares):
                continue
            weight = math.exp(ways + sum(count * math.log(share) for count, share in shares if count))
            if weight > 1e-8:
                yield b, c, weight


@pytest.mark.parametrize("n", [30, 100])
@pytest.mark.parametrize(
    ("first", "second"), [(0.5, 0.5), (0.5, 0.6), (0.9, 0.9), (0.97, 0.97), (0.4, 0.1), (0.97, 0.8), (0.0, 0.45)]
)
@pytest.mark.parametrize("agreement", [0.0, 0.5])
def test_paired_interval_covers_the_truth_as_often_as_it_says(n: int, first: float, second: float, agreement: float):
    """All outcomes are enumerated, so this coverage is exact and nothing is left to chance."""
    both = first * second + agreement * (min(first, second) - first * second)
    only_first, only_second = first - both, second - both
    covered = false_alarms = 0.0
    for b, c, weight in outcomes(n, only_first, only_second):
        low, high = paired_difference_interval(table(b, c, n))
        covered += weight * (low - 1e-9 <= second - first <= high + 1e-9)
        false_alarms += weight * (mcnemar_exact(b, c) <= 0.05)
    assert covered >= 0.93
    if n * (only_first + only_second) >= 10:  # with fewer differing items every interval is wider than it need be
        assert covered <= 0.98
    if first == second:
        assert false_alarms <= 0.05


def test_minimum_detectable_difference_is_found_as_often_as_it_says():
    chance = random.Random(7)
    n, discordant = 400, 80
    difference = minimum_detectable_difference(n, discordant)
    assert difference is not None
    worse, better = (0.2 - difference) / 2, (0.2 + difference) / 2
    found = 0
    for _ in range(1500):
        draws = [chance.random() for _ in range(n)]
        b, c = sum(draw < worse for draw in draws), sum(worse <= draw < worse + better for draw in draws)
        found += mcnemar_exact(b, c) <= 0.05
    # The exact test is a little more careful than the formula, which stands for the test without correction.
    assert 0.74 <= found / 1500 <= 0.83


def test_minimum_detectable_difference_by_its_equation():
    for n, discordant in [(100, 20), (1319, 200), (2000, 2000)]:
        difference = minimum_detectable_difference(n, discordant)
        assert difference is not None
        share = discordant / n
        needed = 1.959963984540054 * math.sqrt(share) + 0.8416212335729143 * math.sqrt(share - difference**2)
        assert math.sqrt(n) * difference == pytest.approx(needed, abs=1e-9)


def test_few_items_show_no_difference_at_all():
    assert minimum_detectable_difference(5, 0) is None
    assert minimum_detectable_difference(6, 0) is not None
    without_discordant = minimum_detectable_difference(50, 0)
    assert without_discordant is not None
    assert 0.1 < without_discordant < 0.2


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9, 0.8]) == [1.0, 1.0, 1.0]
    assert holm([0.2]) == [0.2]
    assert holm([]) == []


@pytest.mark.parametrize("degrees", [1, 2, 3, 9, 29, 100, 1318, 10**5])
@pytest.mark.parametrize("level", [0.5, 0.8, 0.95, 0.999])
def test_quantiles_are_those_of_scipy(degrees: int, level: float):
    assert t_quantile(level, degrees) == pytest.approx(stats.t.ppf((1 + level) / 2, degrees), rel=1e-8)


@pytest.mark.parametrize("degrees", [1, 2, 9, 29, 10**5])
@pytest.mark.parametrize("t", [0.0, 0.1, 1.0, -2.0, 5.0, 40.0])
def test_p_values_are_those_of_scipy(degrees: int, t: float):
    assert t_p_value(t, degrees) == pytest.approx(2 * stats.t.sf(abs(t), degrees), rel=1e-8, abs=1e-12)
    assert t_p_value(math.inf, degrees) == 0.0


def test_many_values_have_students_interval():
    found = mean_interval(range(1, 31))
    assert (found.mean, found.method, found.n) == (15.5, "t", 30)
    assert (found.low, found.high) == pytest.approx((12.213, 18.787), abs=5e-4)
    expected = stats.t.interval(0.95, 29, loc=15.5, scale=stats.sem(range(1, 31)))
    assert (found.low, found.high) == pytest.approx(expected)


def test_clustered_error_by_hand():
    assert clustered_error([1, 1, 0, 0], list("aabb")) == (0.5, 2)
    assert clustered_error([1, 1, 0, 0], list("abab")) == (0.0, 2)
    assert clustered_error([1, 0], list("aa")) == (None, 1)


@pytest.mark.parametrize("right", [(1, 0), (1, 0, 0), (1, 1, 0), (1, 0, 0, 0, 0, 0, 0)])
def test_groups_of_the_same_share_are_worth_one_item_each(right: tuple[int, ...]):
    """Whatever the share, sums of it round; what is left is no error, and no reason to trust the share more."""
    values, clusters = list(right) * 5, [number // len(right) for number in range(5 * len(right))]
    error, groups = clustered_error(values, clusters)
    assert (error, groups) == (0.0, 5)
    share = sum(right) / len(right)
    low, high = clustered_wilson(error, sum(values), len(values), groups)
    assert low < share - 0.25 or low < 0.02
    assert high - low > wilson_interval(round(5 * share), 5)[1] - wilson_interval(round(5 * share), 5)[0] - 0.05
    assert clustered_detectable_difference(values, clusters) is None


def test_every_item_its_own_group_is_the_usual_standard_error():
    values = [3.0, 1.0, 4.0, 1.0, 5.0]
    error, groups = clustered_error(values, range(5))
    assert groups == 5
    assert error == pytest.approx(statistics.stdev(values) / math.sqrt(5))


def test_share_in_groups():
    assert clustered_wilson(0.15, 24, 40, 4) == pytest.approx((0.206, 0.897), abs=5e-4)
    assert clustered_wilson(None, 3, 4, 1) == (0.0, 1.0)
    # All right: nothing tells how alike a group is, so four groups are worth four items and no more.
    low, high = clustered_wilson(0.0, 40, 40, 4)
    assert high == 1.0
    assert low < wilson_interval(4, 4)[0]


def test_groups_never_make_items_worth_more_than_they_are():
    narrowest = clustered_wilson(1e-9, 20, 40, 10_000)
    assert narrowest == pytest.approx(wilson_interval(20, 40), abs=1e-4)


def test_difference_by_hand():
    # Differences 1, 1, 0, 0 in two groups: mean 0.5, standard error 0.5, t = 1 with 1 degree of freedom.
    low, high, p_value = clustered_difference([1, 1, 0, 0], list("aabb"))
    assert (low, high) == (-1.0, 1.0)
    assert p_value == pytest.approx(0.5)


def test_groups_that_do_not_differ_are_taken_as_items():
    low, high, p_value = clustered_difference([0] * 20, [number // 2 for number in range(20)])
    assert (low, high) == paired_difference_interval(PairedTable(both=10, only_first=0, only_second=0, neither=0))
    assert p_value == 1.0
    low, _, p_value = clustered_difference([-1] * 20, [number // 2 for number in range(20)])
    assert low == pytest.approx(-1.0)
    assert p_value == pytest.approx(2 / 2**10)


def test_one_group_says_nothing():
    assert clustered_difference([1, 0, 1], list("aaa")) == (-1.0, 1.0, 1.0)
    assert mean_interval([1, 2], list("aa")).low is None
    assert mean_interval([4.0]).method is None
    assert clustered_detectable_difference([1, 0, 1], list("aaa")) is None


def test_detectable_difference():
    # (12.706 + 1.376) times 0.5 is more than 1; with 21 groups (2.086 + 0.860) times the error.
    assert clustered_detectable_difference([1, 1, 0, 0], list("aabb")) is None
    values, groups = [number % 4 // 2 for number in range(42)], [number // 2 for number in range(42)]
    error, found = clustered_error(values, groups)
    assert found == 21
    assert error
    assert clustered_detectable_difference(values, groups) == pytest.approx((2.086 + 0.860) * error, rel=1e-3)


@pytest.mark.parametrize(
    ("rows", "clusters", "method"),
    [
        ([("p", None), ("q", None)], [0, 1], "wilson"),
        ([("p", "a"), ("q", "a"), ("r", "b")], [0, 0, 1], "clustered_wilson"),
        ([("p", None), ("q", None), (" p\n", None)], [0, 1, 0], BY_PROMPT),
        # Of one group with the same prompt: an earlier version had no other clusters.
        ([("p", "a"), ("p", "a"), ("q", None)], [0, 0, 1], "clustered_wilson"),
        # The prompt joins the groups of both.
        ([("p", "a"), ("q", "a"), ("q", "b"), ("r", "b"), ("s", None)], [0, 0, 0, 0, 1], BY_PROMPT),
    ],
)
def test_items_of_one_group_or_prompt_are_one_cluster(rows: list[tuple], clusters: list[int], method: str):
    found, how = find_clusters([{"prompt": prompt, "group": group} for prompt, group in rows])
    numbers = {each: number for number, each in enumerate(dict.fromkeys(found))}
    assert ([numbers[each] for each in found], how) == (clusters, method)


@pytest.mark.parametrize(("stated", "found"), [((3, 4), (1, 4)), ((5, 5), (0, 3)), ((0, 4), (2, 4)), ((2, 3), (2, 3))])
def test_by_counting_every_way_to_deal_the_right_answers(stated: tuple[int, int], found: tuple[int, int]):
    """Each choice of which items are right is equally likely."""
    items, right = stated[1] + found[1], stated[0] + found[0]
    deals = [sum(item < found[1] for item in chosen) for chosen in combinations(range(items), right)]
    expected = sum(dealt <= found[0] for dealt in deals) / len(deals)
    claimed = ExactMatch(correct=stated[0], n=stated[1])
    assert fisher_exact_less(claimed, ExactMatch(correct=found[0], n=found[1])) == pytest.approx(expected)


def test_a_claimed_99_percent_with_half_right_is_beyond_chance():
    assert fisher_exact_less(ExactMatch(correct=99, n=100), ExactMatch(correct=25, n=50)) < 1e-10
    assert fisher_exact_less(ExactMatch(correct=83, n=100), ExactMatch(correct=40, n=50)) > 0.3
    assert fisher_exact_less(ExactMatch(correct=1300, n=1319), ExactMatch(correct=10, n=5000)) == 0.0


RUNS = 1500
NOISE = 0.017
"""Three standard errors of a share of 0.95 in so many runs."""
PAIRS = 4000
"""Pairs of runs: here the bounds leave room for chance, since the truth lies in their middle."""


def rights(chance: np.random.Generator, groups: int, share: float, alike: float) -> np.ndarray:
    """Return the probability of a right answer in each group: a beta distribution, `alike` its correlation."""
    return chance.beta(share * (1 - alike) / alike, (1 - share) * (1 - alike) / alike, size=groups)


@pytest.mark.slow
@pytest.mark.parametrize("groups", [(10, 10), (30, 10), (100, 5)])
@pytest.mark.parametrize("share", [0.5, 0.8, 0.97])
@pytest.mark.parametrize("alike", [0.1, 0.4])
def test_share_in_groups_covers_the_truth(groups: tuple[int, int], share: float, alike: float):
    count, size = groups
    chance = np.random.default_rng([count, round(100 * share), round(10 * alike)])
    clusters = np.repeat(np.arange(count), size).tolist()
    covered = plain = 0
    for _ in range(RUNS):
        values = (chance.random((count, size)) < rights(chance, count, share, alike)[:, None]).astype(int)
        right = values.ravel().tolist()
        error, found = clustered_error(right, clusters)
        low, high = clustered_wilson(error, sum(right), len(right), found)
        covered += low <= share <= high
        low, high = wilson_interval(sum(right), len(right))
        plain += low <= share <= high
    # Known to be narrow: near-perfect runs whose few mistakes stand in a few groups.
    least = 0.88 if share == 0.97 and alike == 0.4 else 0.93
    assert least - NOISE < covered / RUNS < 0.98 + NOISE
    if alike == 0.4:
        assert plain / RUNS < covered / RUNS  # what the groups are for


@pytest.mark.slow
@pytest.mark.parametrize("groups", [(10, 3), (10, 10), (30, 10), (100, 5)])
@pytest.mark.parametrize("share", [0.5, 0.8, 0.97])
def test_difference_in_groups_finds_a_difference_that_is_none_as_often_as_it_may(groups: tuple[int, int], share: float):
    count, size = groups
    chance = np.random.default_rng([count, size, round(100 * share)])
    clusters = np.repeat(np.arange(count), size).tolist()
    false = naive = 0
    for _ in range(PAIRS):
        shared = rights(chance, count, share, 0.4)
        both = [np.where(chance.random(count) < 0.5, shared, rights(chance, count, share, 0.4)) for _ in range(2)]
        first, second = ((chance.random((count, size)) < one[:, None]).astype(int) for one in both)
        differences = (second - first).ravel().tolist()
        low, high, p_value = clustered_difference(differences, clusters)
        false += p_value <= 0.05
        naive += mcnemar_exact(differences.count(-1), differences.count(1)) <= 0.05
        assert (p_value <= 0.05) == (not low <= 0 <= high)
    # With few groups that differ at all, a near-perfect pair shows too little; nowhere too much.
    least = 0.0 if share == 0.97 else 0.03
    assert least < false / PAIRS < 0.07 or (least == 0.0 and not false)
    if size == 10:
        assert naive / PAIRS > 0.1  # the test that takes the items as independent
