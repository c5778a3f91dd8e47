"""`steps`: whether the reasoning has a number of steps, one a line."""

from __future__ import annotations

from functools import partial

from evidence.rewards.options import RewardOptions
from evidence.rewards.reward import Attempt, RewardRule, Row, lines_between
from evidence.scores.reading import Scoring

MOST_STEPS = 1_000


def enough_steps(attempt: Attempt, *, least: int, most: int, tag: str) -> float:
    """Return 1 for `least` to `most` different lines between the tags, a share for fewer, and 0 for more.

    A line that stands twice counts once, in whatever order. With 2 to 8 steps, one line is worth 0.5, nine are worth 0.
    """
    found = len(set(lines_between(attempt.text, tag)))
    return 0.0 if found > most else min(1.0, found / least)


def lacks_steps(row: Row, *, least: int, most: int) -> str | None:
    """Return why a row's own steps would not be worth the maximum, or None; rows without steps are not judged."""
    if "steps" not in row:
        return None
    own = len({line.strip() for step in row["steps"] for line in step["content"].splitlines() if line.strip()})
    return None if least <= own <= most else f"has {own} different steps, and {least} to {most} are rewarded"


def steps_of(options: RewardOptions, _scoring: Scoring) -> RewardRule:
    """Return the reward; `least` is 1, `most` 64 and `tag` reasoning unless set."""
    least = options.count("least", 1, 1, MOST_STEPS)
    most = options.count("most", 64, 1, MOST_STEPS)
    if most < least:
        options.refuse(f"is {most}, and least is {least}", "most")
    tag = options.text("tag", "reasoning")
    return RewardRule(
        value=partial(enough_steps, least=least, most=most, tag=tag), lacks=partial(lacks_steps, least=least, most=most)
    )
