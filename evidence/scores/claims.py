"""Whether a stated score can be true, given what the same model scores on items of another person."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from evidence.scores.proportions import wilson_interval

LEVEL = 0.001
"""Chance of calling a true score impossible: one honest run in 1,000."""


@dataclass(frozen=True, kw_only=True)
class ExactMatch:
    """Right answers of a number of items."""

    correct: int
    n: int
    """At least 1."""

    @property
    def value(self) -> float:
        """The share of right answers, 0 to 1."""
        return self.correct / self.n

    @property
    def interval(self) -> tuple[float, float]:
        """Its 95 % interval (Wilson)."""
        return wilson_interval(self.correct, self.n)

    def document(self) -> dict[str, Any]:
        """Return it as a receipt states it."""
        low, high = self.interval
        return {"value": self.value, "n": self.n, "low": low, "high": high}


def chance_of_less(claimed: ExactMatch, found: ExactMatch) -> float:
    """Return how likely so few right answers, or fewer, are if both sets are equally hard for one model.

    Fisher's exact test, one-sided: with `K = x₁ + x₂` right answers among `N = n₁ + n₂` items, those of the second set
    are `X ~ Hypergeometric(N, K, n₂)`, and the chance is `P(X ≤ x₂)` (R. A. Fisher, Journal of the Royal Statistical
    Society 98, 1935, p. 39–82; A. Agresti, Categorical Data Analysis, 3rd ed., §3.5.1). A found score that is higher
    than the stated one speaks against no one.

    For 3 of 4 stated and 1 of 4 found: `(1 + 16) / 70 = 0.243`.

    Args:
        claimed: The stated score.
        found: The score on the other items.

    Returns:
        The p-value, from 0 to 1.
    """
    right, wrong = claimed.correct + found.correct, claimed.n + found.n - claimed.correct - found.correct
    fewest = max(0, found.n - wrong)
    of_all = _ln_choose(right + wrong, found.n)
    each = (
        math.exp(_ln_choose(right, x) + _ln_choose(wrong, found.n - x) - of_all)
        for x in range(fewest, found.correct + 1)
    )
    return min(1.0, math.fsum(each))


def _ln_choose(n: int, k: int) -> float:
    """Return the ln of a binomial coefficient, which itself may have millions of digits."""
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
