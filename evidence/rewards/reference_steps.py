"""`reference_steps`: how far the reasoning agrees with the row's steps, by numbers or words; no model judges it."""

from __future__ import annotations

import re
from collections import Counter
from functools import partial

from evidence.rewards.options import RewardOptions
from evidence.rewards.reward import Attempt, RewardRule, Row, lines_between
from evidence.scores.forms import numbers_in
from evidence.scores.reading import Scoring


def agreement(attempt: Attempt, *, tag: str) -> float:
    """Return the F1 of the numbers in the reasoning against those of the row's steps, times the share of their lines.

    Words count where the steps have no number. The order of lines and of numbers does not matter; a number that
    stands more often than in the steps costs as much as one that is missing.

    Steps `2 + 3 = 5` and `5 + 1 = 6` have the numbers 2, 3, 5, 5, 1, 6. A reasoning of the one line `2 + 3 = 5` has
    half of them and nothing else: F1 is 2·3 / (3 + 6) = 2/3, of half the lines: 0.333.
    """
    written = lines_between(attempt.text, tag)
    reference = reference_lines(attempt.row)
    if not written or not reference:
        return 0.0
    own = Counter(numbers_in("\n".join(reference)))
    found = Counter(numbers_in("\n".join(written)))
    if not own:
        own, found = _words(reference), _words(written)
    shared, both = (own & found).total(), own.total() + found.total()
    lines = min(len(written), len(reference)) / max(len(written), len(reference))
    return lines * 2 * shared / both if both else 0.0


def reference_lines(row: Row) -> list[str]:
    """Return the lines of a row's steps that are not blank."""
    return [line.strip() for step in row.get("steps", ()) for line in step["content"].splitlines() if line.strip()]


def lacks_reference(row: Row) -> str | None:
    """Return that a row has no steps with a number or a word, or None."""
    lines = reference_lines(row)
    return None if any(map(numbers_in, lines)) or _words(lines) else "has no steps"


def reference_steps_of(options: RewardOptions, _scoring: Scoring) -> RewardRule:
    """Return the reward; the reasoning stands between `tag`, which is reasoning unless set."""
    return RewardRule(value=partial(agreement, tag=options.text("tag", "reasoning")), lacks=lacks_reference)


def _words(lines: list[str]) -> Counter[str]:
    return Counter(re.findall(r"\w+", "\n".join(lines).casefold()))
