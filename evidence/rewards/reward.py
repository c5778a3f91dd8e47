"""What a reward is: a completion goes in, a number of a stated range comes out, and nothing else does."""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from evidence.scores.reading import Scoring
from schemas.formats import format_value
from schemas.problems import Problem, ProblemError, problem_of

Row = Mapping[str, Any]
LONGEST_ANSWER = 200
"""Characters of a completion of one line that is itself the gold answer, where no answer is read in it."""


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One completion as rewards see it."""

    prompt: str
    """As the row states it."""
    text: str
    """What it wrote, without the end token."""
    row: Row
    """The dataset row, as `dataset_row.schema.json` has it."""
    finished: bool
    """Whether it wrote the end token; else it was cut."""


def lacks_nothing(_row: Row) -> str | None:
    """Return None: every row has what the reward needs."""
    return None


@dataclass(frozen=True, kw_only=True)
class RewardRule:
    """How a reward is computed, once its options are read."""

    value: Callable[[Attempt], float]
    """The pure function."""
    lacks: Callable[[Row], str | None] = lacks_nothing
    """What a row lacks that the function needs, as the end of a sentence ("has no final_answer"), or None."""
    low: float = 0.0
    high: float = 1.0
    """The range, both ends included; a gold answer is worth `high`."""
    needs_answer: bool = False
    """Whether rows need a gold answer."""
    is_ours: bool = True
    """Whether `check` computes it again; code of others is never executed by a check."""


@dataclass(frozen=True, kw_only=True)
class Reward:
    """A reward of a configuration."""

    name: str
    """As the configuration names it."""
    weight: float
    """With which it is added to the others."""
    rule: RewardRule

    @property
    def low(self) -> float:
        """The least that it gives, before the weight."""
        return self.rule.low

    @property
    def high(self) -> float:
        """The most that it gives, before the weight."""
        return self.rule.high

    @property
    def needs_answer(self) -> bool:
        """Whether rows need a gold answer."""
        return self.rule.needs_answer

    @property
    def is_ours(self) -> bool:
        """Whether `check` computes it again."""
        return self.rule.is_ours

    def score(self, attempt: Attempt) -> float:
        """Return what a completion is worth, from `low` to `high`.

        Raises:
            ProblemError: exit code 1; the function raises, or gives no finite number of its range. The problem names
                the prompt, and the line that raised.
        """
        try:
            value = self.rule.value(attempt)
        except KeyboardInterrupt:  # of the user
            raise
        except BaseException as error:  # a reward of a user's own may raise anything, SystemExit too
            why = f"raises {type(error).__name__}: {error}".removesuffix(": ")
            raise ProblemError([self._problem(why, attempt, error)]) from error
        number = finite_number(value)
        if number is None or not self.low <= number <= self.high:
            stated = "is not a finite number" if number is None else f"is outside {self.low:g} to {self.high:g}"
            problem = self._problem(f"gives {show_value(value)}, which {stated}", attempt)
            kind = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
            raise ProblemError([replace(problem, what=f"{problem.what} It is of type {kind}.")])
        return number

    def _problem(self, why: str, attempt: Attempt, error: BaseException | None = None) -> Problem:
        what = f"The reward {self.name} {why}, for the prompt {format_value(attempt.prompt)} and the completion "
        own = traceback.extract_tb(error.__traceback__)[1:] if error is not None else []
        at = next((frame for frame in reversed(own) if frame.filename == own[0].filename), None)
        file, line = ("", None) if at is None else (at.filename, at.lineno)
        return problem_of("TP906", file=file, line=line, what=f"{what}{format_value(attempt.text)}.")


def finite_number(value: Any) -> float | None:
    """Return what `float` makes of a number of any library, or None of a text, NaN, infinity and what is no number.

    >>> finite_number(True), finite_number("1"), finite_number(float("nan"))
    (1.0, None, None)
    """
    if isinstance(value, str | bytes | bytearray) or getattr(value, "shape", ()) != ():
        return None
    try:
        number = float(value)
    except Exception:  # noqa: BLE001 - `__float__` of a library may raise anything
        return None
    return number if math.isfinite(number) else None


def show_value(value: Any) -> str:
    """Return a value that a reward gave in a few characters, whatever it is."""
    return f"{value!r:.60}"


def gold_answers(row: Row, scoring: Scoring) -> tuple[str, ...]:
    """Return the answers of a row that count as right; none where it states none.

    That is `final_answer`, or what is read in the completion that the row teaches, or all of that completion where it
    is a bare answer: one line of at most `LONGEST_ANSWER` characters in which none is read.

    >>> gold_answers({"prompt": "2+2?", "completion": "<answer>4</answer>"}, Scoring())
    ('4',)
    >>> gold_answers({"prompt": "2+2?", "completion": "4"}, Scoring()), gold_answers({"prompt": "Hi"}, Scoring())
    (('4',), ())
    """
    if "final_answer" in row:
        return (str(row["final_answer"]),)
    if "messages" in row:
        taught = str(row["messages"][-1]["content"])
    elif "completion" in row:
        taught = str(row["completion"])
    else:
        return ()
    answer = scoring.read(taught)
    bare = taught.strip()
    if answer is None and bare and "\n" not in bare and len(bare) <= LONGEST_ANSWER:
        answer = bare
    return () if answer is None else (answer,)


def lacks_answer(row: Row, *, scoring: Scoring) -> str | None:
    """Return what a row lacks of a gold answer that can be compared, or None."""
    answers = gold_answers(row, scoring)
    if not answers:
        return f"has no gold answer: no final_answer, and no completion in which one is read as {scoring.in_words()}"
    if not any(map(scoring.can_compare, answers)):
        return (
            f"has the gold answer {format_value(answers[0])}, which is no number, and answers are compared as numbers"
        )
    return None


def lines_between(text: str, tag: str) -> list[str]:
    r"""Return the lines that are not blank between `<tag>` and `</tag>`; none where either is missing or stands twice.

    >>> lines_between("<reasoning>a\n\n b </reasoning>", "reasoning"), lines_between("a", "reasoning")
    (['a', 'b'], [])
    """
    before, opened, rest = text.partition(f"<{tag}>")
    inside, closed, after = rest.partition(f"</{tag}>")
    if not opened or not closed or any(f"<{tag}>" in part or f"</{tag}>" in part for part in (before, inside, after)):
        return []
    return [line.strip() for line in inside.splitlines() if line.strip()]
