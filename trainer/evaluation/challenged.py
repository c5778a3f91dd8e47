"""What came of questioning a model: whether its stated score can be true, in figures and in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evidence.scores.intervals import REFUTATION_LEVEL, ExactMatch, fisher_exact_less
from schemas.formats import quantity
from trainer.evaluation.given_again import MOST_SHOWN, items_group
from trainer.evaluation.questions import Questions
from trainer.evaluation.regenerate import RepeatedAnswer, Verdict

SAID: Mapping[Verdict, str] = {
    "identical": "written anew, identical",
    "within tolerance": "written anew, within tolerance",
    "followed": "followed in one pass, as stated",
    "different": "different",
}
"""What came of stated answers, in words."""


@dataclass(frozen=True, kw_only=True)
class ChallengeAnswers:
    """A model's answers to a judge."""

    stated: ExactMatch
    """The exact match that the run states."""
    stated_set: str
    """On which set."""
    questions: Questions
    answers: Sequence[dict[str, Any]]
    """To the questions, as rows of predictions."""
    again: Sequence[RepeatedAnswer]
    """Stated answers that were given again."""
    items: int
    """Stated answers in all."""

    @property
    def found(self) -> ExactMatch:
        """The exact match on the judge's questions."""
        return ExactMatch(correct=sum(row["correct"] for row in self.answers), n=len(self.answers))

    @property
    def chance(self) -> float:
        """How likely so low a score is, if the stated one is true.

        Anyone who leaves out what the training rows hold too keeps the harder questions, since of easy ones there are
        few. So those
        left out count as answered rightly, as many of them as there were questions at most: an honest run is not
        accused for the choice, and who trained on nearly everything cannot hide behind it.

        Example: 83 of 100 right and 57 left out are held as 140 of 157 against a stated 94 of 100: a chance of 0.14,
        where 83 of 100 alone have one of 0.012.
        """
        left_out = min(self.questions.in_training or 0, self.found.n)
        as_drawn = ExactMatch(correct=self.found.correct + left_out, n=self.found.n + left_out)
        return fisher_exact_less(self.stated, as_drawn)

    @property
    def can_be_true(self) -> bool:
        """Whether the stated score is possible, given the score on the judge's questions."""
        return self.chance >= REFUTATION_LEVEL

    @property
    def verdicts(self) -> Counter[Verdict]:
        """How many of the answers given again have each verdict."""
        return Counter(each.verdict for each in self.again)

    @property
    def result(self) -> str:
        """The worst of all that was found; a score that can be true is within tolerance, never identical."""
        if not self.can_be_true or self.verdicts["different"]:
            return "different"
        is_same = self.verdicts["identical"] and not self.verdicts["within tolerance"]
        return "identical" if is_same else "within tolerance"


def receipt_groups(found: ChallengeAnswers) -> dict[str, Any]:
    """Return the groups of a receipt that state what came of a challenge."""
    failures = [row for row in found.answers if not row["correct"]]
    return {
        "covered": {"segments": [], "items": items_group(found.again)},
        "score": {
            "eval_set": found.stated_set,
            "stated": found.stated.document(),
            "questions": found.questions.document(),
            "found": found.found.document(),
            "chance": found.chance,
            "level": REFUTATION_LEVEL,
            "can_be_true": found.can_be_true,
            "failures": [
                {key: row[key] for key in ("id", "prompt", "expected", "output_text")} for row in failures[:MOST_SHOWN]
            ],
        },
        "result": found.result,
        "said": in_words(found),
    }


def in_words(found: ChallengeAnswers) -> str:
    """Return what came of a challenge, in a few sentences for a judge."""
    asked = quantity(len(found.answers), "new question")
    score = (
        f"Scored {in_interval(found.found)} on {asked}, and states {in_interval(found.stated)} on {found.stated_set}"
    )
    if found.can_be_true:
        score += ": the stated score can be true."
    else:
        score += f": were it true, so low a score would have a chance of {found.chance:.1g}, so it cannot be."
    parts = [f"{count} {said}" for verdict, said in SAID.items() if (count := found.verdicts[verdict])]
    answers = "1 stated answer" if found.items == 1 else f"{found.items:,} stated answers"
    again = [f"Of {answers}: {', '.join(parts)}."] if parts else []
    return " ".join([score, *again])


def in_interval(score: ExactMatch) -> str:
    """Return a score with its 95 % interval: `0.830 (0.745 to 0.891)`."""
    low, high = score.interval
    return f"{score.value:.3f} ({low:.3f} to {high:.3f})"
