"""`reasoning_gym`: what the package of that name gives an answer to one of its tasks.

Its scorers are code of others, some of which evaluate what a model wrote, so `check` never calls them.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import cache, partial
from importlib.util import find_spec
from typing import Any

from evidence.rewards.options import RewardOptions
from evidence.rewards.reward import Attempt, RewardRule, Row
from evidence.scores.reading import Scoring
from schemas.problems import problem_of

KIND = "reasoning_gym"
PACKAGE = "reasoning_gym"


@cache
def scorer_of(task: str) -> Callable[..., Any]:
    """Return the package's function from an answer and an entry to a number from 0 to 1, by the name of a task."""
    found: Callable[..., Any] = importlib.import_module(PACKAGE).get_score_answer_fn(task)
    return found


def gym_score(attempt: Attempt, *, scoring: Scoring) -> float:
    """Return what `score_answer` of the row's task gives the answer, 0 to 1; 0 where none is read."""
    task, answer = attempt.row["task"], scoring.read(attempt.text)
    return 0.0 if answer is None else float(scorer_of(task["name"])(answer=answer, entry=task["entry"]))


def lacks_entry(row: Row) -> str | None:
    """Return that a row has no entry of the package, or None."""
    task: Any = row.get("task")
    has_entry = isinstance(task, dict) and task.get("kind") == KIND and isinstance(task.get("name"), str)
    return None if has_entry and isinstance(task.get("entry"), dict) else f"has no task of the kind {KIND}"


def reasoning_gym_of(options: RewardOptions, scoring: Scoring) -> RewardRule:
    """Return the reward; a problem is added where the package is not installed."""
    if options.executes and find_spec(PACKAGE) is None:
        what = f"The reward {KIND} needs the package reasoning-gym, which is not installed."
        options.problems.append(problem_of("TP907", file=options.file, pointer=options.pointer, what=what))
    return RewardRule(value=partial(gym_score, scoring=scoring), lacks=lacks_entry, is_ours=False)
