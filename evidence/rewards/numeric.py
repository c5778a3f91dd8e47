"""`numeric`: 1 where the answer is a number near the row's, else 0."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from evidence.rewards.options import RewardOptions
from evidence.rewards.reward import Attempt, RewardRule, Row, gold_answers
from evidence.scores.forms import TOLERANCE
from evidence.scores.reading import Scoring
from schemas.formats import format_value


def near_answer(attempt: Attempt, *, scoring: Scoring, tolerance: float) -> float:
    """Return 1 where the answer is at most `tolerance` times the gold answer's size away from it, else 0.

    The sign counts, and only 0 is near 0. Numbers are read as the evaluation reads them: `50 %` is 50 in both.

    With a tolerance of 0.05, 97 and 104 are near 100, and −100 is not; 0 is near 0, and −19 is near −20.
    """
    answer = scoring.read(attempt.text)
    golds = gold_answers(attempt.row, scoring)
    return float(answer is not None and any(scoring.is_near(answer, gold, tolerance, least=0) for gold in golds))


def lacks_number(row: Row, *, scoring: Scoring) -> str | None:
    """Return what a row lacks of a gold answer that is a number, or None."""
    answers = gold_answers(row, scoring)
    if not answers:
        return "has no gold answer"
    if not any(map(replace(scoring, compare="numeric").can_compare, answers)):
        return f"has the gold answer {format_value(answers[0])}, which is no number"
    return None


def numeric_of(options: RewardOptions, scoring: Scoring) -> RewardRule:
    """Return the reward; `tolerance` is a share of the gold answer, 1e-6 unless set."""
    tolerance = options.number("tolerance", TOLERANCE, 0, 1)
    return RewardRule(
        value=partial(near_answer, scoring=scoring, tolerance=tolerance),
        lacks=partial(lacks_number, scoring=scoring),
        needs_answer=True,
    )
