"""What a judge's number draws of a training, and how surely that finds steps that were invented."""

from collections import Counter
from itertools import combinations
from math import comb

import pytest

from trainer.loop.chain import Segment, SegmentSpan, split_segments, split_spans
from trainer.replay.draw import Draw, chance_said, draw_segments


def of_tens(count: int) -> tuple[SegmentSpan, ...]:
    return split_spans(split_segments(0, 10 * count, range(0, 10 * count, 10)))


def named(draw: Draw) -> tuple[int, ...]:
    return tuple(part.first_step for part in draw.named)


def test_segments_of_one_step_are_drawn_together():
    parts = split_spans(split_segments(0, 2800, range(2800)))
    assert [(part.first_step, part.last_step) for part in parts] == [(n, n + 140) for n in range(0, 2800, 140)]
    assert sum(len(part.segments) for part in parts) == 2800


def test_a_rest_that_is_short_belongs_to_the_last_part():
    parts = split_spans(split_segments(0, 103, [50, 100]))
    assert [(part.first_step, part.last_step) for part in parts] == [(0, 50), (50, 103)]
    assert len(split_spans(split_segments(4, 8, [5, 6, 7]))) == 4
    assert len(split_spans(split_segments(0, 1, []))) == 1


def test_a_number_draws_every_choice_and_always_the_same():
    parts = of_tens(6)
    assert {named(draw_segments(parts, None, count=2, number=number)) for number in range(60)} == set(
        combinations((10, 20, 30, 40), 2)
    )
    assert named(draw_segments(parts, None, count=2, number=3)) == named(draw_segments(parts, None, count=2, number=3))
    assert [part.first_step for part in draw_segments(parts, None, count=9, number=1).order] == [0, 10, 20, 30, 40, 50]
    assert [part.first_step for part in draw_segments(parts, None, count=0, number=1).order] == [0, 50]


def test_a_step_is_drawn_with_the_same_chance_wherever_it_lies():
    """A part of 300 steps is drawn first three times as often as one of 100: 3,000 numbers, four standard errors."""
    parts = split_spans(split_segments(0, 600, [100, 200, 500]))
    first = Counter(named(draw_segments(parts, None, count=1, number=number))[0] for number in range(3000))
    assert set(first) == {100, 200}
    assert abs(first[200] / 3000 - 0.75) < 4 * (0.75 * 0.25 / 3000) ** 0.5


@pytest.mark.parametrize(("count", "share", "false"), [(3, 0.5, 10), (5, 0.5, 10), (1, 0.05, 1), (4, 0.25, 5)])
def test_the_chance_of_finding_invented_steps_is_hypergeometric(count: int, share: float, false: int):
    """Twenty parts, of which eighteen are drawn from: the miss is C(18 - f, k) / C(18, k)."""
    found = draw_segments(of_tens(20), None, count=count, number=7).caught(share)
    assert found == pytest.approx(1 - comb(18 - false, count) / comb(18, count))


def test_the_chance_is_what_happens():
    """Of all choices of three of eighteen parts, those that touch one of the ten false ones, counted one by one."""
    draw = draw_segments(of_tens(20), None, count=3, number=7)
    choices = list(combinations(range(18), 3))
    touched = sum(any(part < 10 for part in choice) for choice in choices)
    assert draw.caught(0.5) == pytest.approx(touched / len(choices))


def test_parts_that_are_unlike_are_never_said_to_be_surer_than_they_are():
    """Any false set of half of the steps, any order of drawing by length: the stated chance is a bound."""
    lengths = (10, 10, 40, 20, 10, 30, 10)
    ends = [sum(lengths[: n + 1]) for n in range(len(lengths))]
    parts = tuple(
        SegmentSpan(segments=(Segment(number=n, first_step=end - length, last_step=end),))
        for n, (length, end) in enumerate(zip(lengths, ends, strict=True))
    )
    stated = draw_segments(parts, None, count=2, number=1).caught(0.5)
    worst = min(
        1 - missed(lengths[1:-1], false, 2)
        for size in range(6)
        for false in combinations(range(5), size)
        if sum(lengths[1:-1][part] for part in false) >= sum(lengths) / 2
    )
    assert 0 < stated <= worst + 1e-12


def missed(lengths: tuple[int, ...], false: tuple[int, ...], count: int) -> float:
    """Return the chance that none of the false parts is drawn, each next part by its share of the steps left."""

    def honest(left: tuple[int, ...], draws: int) -> float:
        total = sum(lengths[part] for part in left)
        if draws == 0:
            return 1.0
        return sum(
            lengths[part] / total * honest(tuple(each for each in left if each != part), draws - 1)
            for part in left
            if part not in false
        )

    return honest(tuple(range(len(lengths))), count)


def test_what_the_maker_chose_is_no_draw():
    parts = of_tens(20)
    draw = draw_segments(parts, [0, 40, 80, 190], count=3, number=7)
    assert (named(draw), draw.is_of_all, draw.caught(0.5)) == ((40, 80), False, 0.0)
    assert draw.said == (
        "The number 7 drew 2 of the 2 parts whose states are here, of 18 parts between the first and the last; the "
        "run's maker knew which. `trainproof replay RUN --seed 7 --ask` says which states to ask for."
    )
    assert draw_segments(parts, [0], count=3, number=7).said == (
        "The number 7 drew nothing: none of the 18 parts between the first and the last has a state here to begin "
        "from. `trainproof replay RUN --seed 7 --ask` says which states to ask for."
    )


def test_what_a_draw_is_worth_is_said():
    assert draw_segments(of_tens(20), None, count=5, number=7).said == (
        "The number 7 drew 5 of 18 parts between the first and the last: had half of the training been invented, it "
        "would be found with a chance of 99.3 %."
    )
    assert draw_segments(of_tens(2), None, count=5, number=7).said == (
        "The run has no part between its first and its last one: no number draws."
    )
    assert (chance_said(0.98375), chance_said(1.0), chance_said(0.99999)) == (
        "with a chance of 98.3 %",
        "for certain",
        "with a chance of 99.9 %",
    )
