"""What a completion is worth in training: named pure functions, a file each, all of them in `REWARDS`.

The trainer rewards with them, and the checker computes the rewards again. A further one is a file here and an entry.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from evidence.rewards.advantages import advantages
from evidence.rewards.countdown import countdown_of
from evidence.rewards.exact import exact_of
from evidence.rewards.form import format_of
from evidence.rewards.length import length_of
from evidence.rewards.numeric import numeric_of
from evidence.rewards.options import RewardOptions
from evidence.rewards.own import own_of
from evidence.rewards.reasoning_gym import reasoning_gym_of
from evidence.rewards.reference_steps import reference_steps_of
from evidence.rewards.reward import Attempt, Reward, RewardRule, Row
from evidence.rewards.steps import steps_of
from evidence.scores.reading import Scoring
from schemas.formats import format_value, join_words
from schemas.problems import Problem, ProblemError, problem_of, truncate_problems

__all__ = ["REWARDS", "Attempt", "Reward", "advantages", "refuse_rows", "reward_parts", "rewards_of", "total_reward"]


RuleMaker = Callable[[RewardOptions, Scoring], RewardRule]

REWARDS: dict[str, RuleMaker] = {
    "exact": exact_of,
    "numeric": numeric_of,
    "format": format_of,
    "steps": steps_of,
    "length": length_of,
    "reference_steps": reference_steps_of,
    "countdown": countdown_of,
    "reasoning_gym": reasoning_gym_of,
}
"""By name: what makes the reward of its options. Any other is `module:function`."""


def rewards_of(
    settings: Sequence[Mapping[str, Any] | str], scoring: Scoring, *, file: str, execute: bool = True
) -> tuple[Reward, ...]:
    """Return the rewards of a configuration.

    Args:
        settings: `objective.rewards`: items with name, weight (1 unless set) and options, or names alone.
        scoring: how the evaluation reads answers.
        file: the configuration, for messages.
        execute: whether code of others is imported. False: a reward that is not `is_ours` cannot be computed.

    Raises:
        ProblemError: exit code 2, with all that is wrong: an unknown name, one that stands twice, a module that is
            missing or has no such function, options that it does not take, no weight above 0.
    """
    problems: list[Problem] = []
    rewards: list[Reward] = []
    for number, given in enumerate(settings):
        item: Mapping[str, Any] = {"name": given} if isinstance(given, str) else given
        pointer = f"/objective/rewards/{number}"
        name, weight = str(item["name"]), item.get("weight", 1.0)
        if any(reward.name == name for reward in rewards):
            problems.append(_weighs_nothing(file, pointer, f"The reward {name} stands twice."))
        if not isinstance(weight, int | float) or not math.isfinite(weight):
            problems.append(_weighs_nothing(file, pointer, f"The weight of {name} is {format_value(weight)}."))
            weight = 1.0
        options = RewardOptions(
            name,
            item.get("options") or {},
            file=file,
            pointer=f"{pointer}/options",
            problems=problems,
            executes=execute,
        )
        rewards.append(Reward(name=name, weight=float(weight), rule=_rule_of(options, scoring)))
    if not any(reward.weight > 0 for reward in rewards):
        what = "No reward has a weight above 0." if rewards else "There is no reward."
        problems.append(_weighs_nothing(file, "/objective/rewards", what))
    if problems:
        raise ProblemError(problems, exit_code=2)
    return tuple(rewards)


def refuse_rows(
    rewards: Sequence[Reward], rows: Sequence[Row], *, file: str, lines: Sequence[int] | None = None
) -> list[Problem]:
    """Return the problems of rows that lack what a reward needs: for each reward the first few, and how many more.

    Args:
        rewards: of the configuration.
        rows: of the dataset.
        file: the dataset, for messages.
        lines: where rows stand in it; rows beyond them were generated. None: no row has a line.
    """
    return [problem for reward in rewards for problem in truncate_problems(_lacking(reward, rows, file, lines or ()))]


def reward_parts(rewards: Sequence[Reward], attempt: Attempt) -> dict[str, float]:
    """Return what each reward gives a completion, by name and before its weight.

    Raises:
        ProblemError: exit code 1; one of them cannot be computed.
    """
    return {reward.name: reward.score(attempt) for reward in rewards}


def total_reward(rewards: Sequence[Reward], parts: Mapping[str, float]) -> float:
    """Return the sum of the parts, each times its weight: `{"exact": 1, "format": 0.5}` at 1 and 0.2 are 1.1."""
    return math.fsum(reward.weight * parts[reward.name] for reward in rewards)


def _rule_of(options: RewardOptions, scoring: Scoring) -> RewardRule:
    if options.name in REWARDS:
        rule = REWARDS[options.name](options, scoring)
    elif ":" in options.name:
        rule = own_of(options, scoring)
    else:
        what = f"There is no reward {options.name}."
        expected = f"{join_words(REWARDS)}, or module:function"
        pointer = options.pointer.removesuffix("/options") + "/name"
        found = problem_of("TP901", file=options.file, pointer=pointer, what=what, expected=expected)
        options.problems.append(found)
        return RewardRule(value=lambda _attempt: 0.0)
    options.refuse_rest()
    return rule


def _lacking(reward: Reward, rows: Sequence[Row], file: str, lines: Sequence[int]) -> Iterator[Problem]:
    for number, row in enumerate(rows):
        if (lacks := reward.rule.lacks(row)) is not None:
            line = lines[number] if number < len(lines) else None
            yield problem_of("TP905", file=file, line=line, what=f"A row {lacks}; the reward {reward.name} needs it.")


def _weighs_nothing(file: str, pointer: str, what: str) -> Problem:
    return problem_of("TP902", file=file, pointer=pointer, what=what)
