"""The parts of a run that a seed draws, and the probability that the draw detects fabricated steps."""

from collections import Counter
from collections.abc import Sequence
from itertools import accumulate, combinations
from math import comb

import pytest

from trainer.loop.chain import Segment, split_segments, split_spans
from trainer.replay.replay import Draw, draw_segments


def equal_parts(count: int) -> tuple[Segment, ...]:
    return split_spans(split_segments(0, 10 * count, range(0, 10 * count, 10)))


def drawn_starts(draw: Draw) -> tuple[int, ...]:
    return tuple(part.first_step for part in draw.drawn)


def test_short_segments_are_grouped_into_parts_of_a_twentieth():
    parts = split_spans(split_segments(0, 2800, range(2800)))
    assert [(part.first_step, part.last_step) for part in parts] == [(n, n + 140) for n in range(0, 2800, 140)]
    # A short rest belongs to the last part.
    parts = split_spans(split_segments(0, 103, [50, 100]))
    assert [(part.first_step, part.last_step) for part in parts] == [(0, 50), (50, 103)]
    assert len(split_spans(split_segments(4, 8, [5, 6, 7]))) == 4
    assert len(split_spans(split_segments(0, 1, []))) == 1


def test_seeds_draw_every_combination_and_each_always_the_same():
    parts = equal_parts(6)
    draws = [drawn_starts(draw_segments(parts, None, count=2, seed=seed)) for seed in range(60)]
    assert set(draws) == set(combinations((10, 20, 30, 40), 2))
    assert draws == [drawn_starts(draw_segments(parts, None, count=2, seed=seed)) for seed in range(60)]
    for count, selected in ((9, [0, 10, 20, 30, 40, 50]), (0, [0, 50])):
        draw = draw_segments(parts, None, count=count, seed=1)
        assert [part.first_step for part in draw.selected] == selected


def test_every_step_is_drawn_with_the_same_probability():
    """A part of 300 steps is drawn first three times as often as one of 100: 3,000 seeds, four standard errors."""
    parts = split_spans(split_segments(0, 600, [100, 200, 500]))
    first = Counter(drawn_starts(draw_segments(parts, None, count=1, seed=seed))[0] for seed in range(3000))
    assert set(first) == {100, 200}
    assert abs(first[200] / 3000 - 0.75) < 4 * (0.75 * 0.25 / 3000) ** 0.5


@pytest.mark.parametrize(("count", "share", "false"), [(3, 0.5, 10), (5, 0.5, 10), (1, 0.05, 1), (4, 0.25, 5)])
def test_detection_probability_is_hypergeometric_for_equal_parts(count, share, false):
    """Of 20 parts 18 can be drawn, and none of the false ones is with probability C(18 - f, k) / C(18, k)."""
    probability = draw_segments(equal_parts(20), None, count=count, seed=7).detection_probability(share)
    assert probability == pytest.approx(1 - comb(18 - false, count) / comb(18, count))


def test_detection_probability_is_a_lower_bound_for_unequal_parts():
    """Compared with every set of false parts that has at least half of all steps."""
    lengths = (10, 10, 40, 20, 10, 30, 10)
    parts = tuple(
        Segment(number=number, first_step=end - length, last_step=end)
        for number, (length, end) in enumerate(zip(lengths, accumulate(lengths), strict=True))
    )
    inner = lengths[1:-1]
    worst = min(
        1 - missed(inner, false, tuple(range(len(inner))), 2)
        for size in range(6)
        for false in combinations(range(5), size)
        if sum(inner[part] for part in false) >= sum(lengths) / 2
    )
    assert 0 < draw_segments(parts, None, count=2, seed=1).detection_probability(0.5) <= worst + 1e-12


def missed(lengths: Sequence[int], false: Sequence[int], left: tuple[int, ...], draws: int) -> float:
    """Return the probability that no false part is drawn, each next part in proportion to its steps."""
    if draws == 0:
        return 1.0
    total = sum(lengths[part] for part in left)
    return sum(
        lengths[part] / total * missed(lengths, false, tuple(each for each in left if each != part), draws - 1)
        for part in left
        if part not in false
    )


def test_a_draw_among_available_states_detects_nothing():
    draw = draw_segments(equal_parts(20), [0, 40, 80, 190], count=3, seed=7)
    assert (drawn_starts(draw), draw.is_complete, draw.detection_probability(0.5)) == ((40, 80), False, 0.0)
    assert draw.description.startswith("Seed 7 draws 2 of 2 parts. Only 2 of the 18 parts ")
    nothing = draw_segments(equal_parts(20), [0], count=3, seed=7)
    assert nothing.description.startswith("Seed 7 draws nothing. Only 0 of the 18 parts ")


def test_the_detection_probability_is_never_rounded_up():
    def ending(count: int) -> str:
        return draw_segments(equal_parts(20), None, count=count, seed=7).description[-7:]

    assert 0.9999 < draw_segments(equal_parts(20), None, count=8, seed=7).detection_probability(0.5) < 1
    assert [ending(count) for count in (5, 8, 9)] == ["99.3 %.", "99.9 %.", " 100 %."]
    assert draw_segments(equal_parts(2), None, count=5, seed=7).description.startswith("Nothing to draw")
