"""Whether rewards have anything to teach a model: how often one, and how often any of a group's completions is right.

Where no completion of any group is right there is nothing to reinforce; where nearly every one is, nothing to gain.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from evidence.rewards.reward import Reward
from evidence.scores.samples import pass_at, share_of
from schemas.formats import quantity
from schemas.problems import Problem, problem_of

NEAR_ZERO, NEAR_ONE = 0.05, 0.95
"""pass@k below which there is nothing to reinforce, pass@1 above which there is nothing to gain."""


def decisive(rewards: Sequence[Reward]) -> Reward:
    """Return the reward that decides whether a completion is right: that of the largest weight times range."""
    return max(rewards, key=lambda reward: abs(reward.weight) * (reward.high - reward.low))


def is_right(rewards: Sequence[Reward], parts: Mapping[str, float | None]) -> bool:
    """Return whether the decisive part of a completion's reward is as good as it can be."""
    reward = decisive(rewards)
    return parts[reward.name] == (reward.high if reward.weight > 0 else reward.low)


def pass_rates(right: Sequence[int], samples: int) -> dict[str, float]:
    """Return pass@1 and pass@k of prompts, k being all completions of each.

    4 completions to each of 3 prompts, of which 0, 1 and 4 are right: pass@1 is 5 of 12, pass@4 2 of 3.

    >>> pass_rates([0, 1, 4], 4)
    {'pass_1': 0.4166666666666667, 'pass_k': 0.6666666666666666}

    Args:
        right: right completions of each prompt, at least one of them.
        samples: completions of each prompt.
    """
    return {
        name: math.fsum(pass_at(samples, count, tries) for count in right) / len(right)
        for name, tries in (("pass_1", 1), ("pass_k", samples))
    }


def headroom_problems(found: Mapping[str, Any], *, file: str, of: str = "") -> Iterator[Problem]:
    """Yield a warning where a model that was measured has nothing to learn from its rewards.

    Args:
        found: the group `headroom` of a manifest's result.
        file: named in the problem.
        of: where it was measured, as the end of a sentence.
    """
    said = f"{in_words(found)}{of}."
    if found["pass_k"] < NEAR_ZERO and not found["partial"]:
        yield problem_of("TP927", file=file, pointer="/objective/rewards", what=said)
    if found["pass_1"] > NEAR_ONE:
        yield problem_of("TP928", file=file, pointer="/objective/rewards", what=said)


def in_words(found: Mapping[str, Any]) -> str:
    """Return both rates with the interval of the first, of how many prompts, and how many groups have no spread."""
    right, samples = found["right"], found["samples"]
    interval = share_of([count / samples for count in right], range(len(right)), samples)["interval"]
    return (
        f"Before the first step pass@1 is {found['pass_1']:.3f} (95 % interval {interval['low']:.3f} to "
        f"{interval['high']:.3f}) and pass@{samples} {found['pass_k']:.3f}, of {quantity(len(right), 'prompt')} with "
        f"{samples} completions each; {found['flat_groups']:.0%} of these groups have no spread"
    )
