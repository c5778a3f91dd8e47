"""`exact`: 1 where the answer is the row's, read and compared as the evaluation does it, else 0."""

from __future__ import annotations

from functools import partial

from evidence.rewards.options import RewardOptions
from evidence.rewards.reward import Attempt, RewardRule, gold_answers, lacks_answer
from evidence.scores.reading import Scoring


def exact_answer(attempt: Attempt, *, scoring: Scoring) -> float:
    """Return 1 for a right answer, else 0: what `correct` of a prediction would be, never what is right leniently.

    >>> exact_answer(Attempt(prompt="2+2?", text="<answer>4</answer>", row={"final_answer": "4"}, finished=True),
    ...              scoring=Scoring())
    1.0
    """
    return float(scoring.is_right(scoring.read(attempt.text), gold_answers(attempt.row, scoring)))


def exact_of(_options: RewardOptions, scoring: Scoring) -> RewardRule:
    """Return the reward; it takes no option."""
    return RewardRule(
        value=partial(exact_answer, scoring=scoring), lacks=partial(lacks_answer, scoring=scoring), needs_answer=True
    )
