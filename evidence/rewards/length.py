"""`length`: whether a completion is neither too short nor too long, in characters."""

from __future__ import annotations

from functools import partial

from evidence.rewards.options import RewardOptions
from evidence.rewards.reward import Attempt, RewardRule
from evidence.scores.reading import Scoring

LONGEST = 1_000_000


def good_length(attempt: Attempt, *, least: int, most: int, margin: int) -> float:
    """Return 1 for `least` to `most` characters, a share below, and less and less to 0 over `margin` characters above.

    A completion that was cut has no length yet, and is worth 0. With 10 to 100 characters and a margin of 50: 5
    characters are worth 0.5, 100 are worth 1, 125 are worth 0.5, 150 and more are worth 0.
    """
    length = len(attempt.text)
    if not attempt.finished:
        return 0.0
    if length <= most:
        return 1.0 if length >= least else length / least
    return max(0.0, 1.0 - (length - most) / margin) if margin else 0.0


def length_of(options: RewardOptions, _scoring: Scoring) -> RewardRule:
    """Return the reward; `most` must be set, `least` and `margin` are 0 unless set."""
    least, margin = options.count("least", 0, 0, LONGEST), options.count("margin", 0, 0, LONGEST)
    if not options.given("most"):
        options.refuse("has no option most: a length that nothing bounds would run away")
    most = options.count("most", LONGEST, 1, LONGEST)
    if most < least:
        options.refuse(f"is {most:,}, and least is {least:,}", "most")
    return RewardRule(value=partial(good_length, least=least, most=most, margin=margin))
