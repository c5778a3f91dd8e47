"""TP44x: roll-outs that agree with each other and show that a run was fooled by its rewards, or learned nothing."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from statistics import fmean, variance

import numpy as np

from evidence.records.facts import Document, Facts, finding
from evidence.rewards.exact import exact_of
from evidence.rewards.options import RewardOptions
from evidence.rewards.reward import Reward
from evidence.rules.contradiction.rollouts import RewardedRun, rewarded_run
from evidence.run import layout
from schemas.formats import format_value
from schemas.problems import Problem

SURE = 3.0
"""Standard errors between the first and the last third beyond which a change is no chance: once in 700 either way."""
FEWEST_GROUPS = 8
"""Groups of a third from which on it is compared."""
FEWEST_COMPLETIONS = 32
MOSTLY = 0.9
FEWEST_ROWS = 8
"""Metric rows from which on lengths are compared, quarter with quarter."""


def rewards_pay_for_right_answers(facts: Facts) -> Iterator[Problem]:
    """Yield a warning where, from the first to the last third of roll-outs, reward rises and exact match falls."""
    run = rewarded_run(facts)
    if run is None or run.scoring is None or len(run.steps) < 3:
        return
    options = RewardOptions("exact", {}, file=layout.CONFIG, pointer="", problems=[], executes=False)
    exact = Reward(name="exact", weight=0.0, rule=exact_of(options, run.scoring))
    first, last = ([_means(run, exact, step) for step in steps] for steps in _ends(list(run.steps)))
    before, after = ([pair for step in steps for pair in step] for steps in (first, last))
    if min(len(before), len(after)) < FEWEST_GROUPS:
        return
    (reward_then, exact_then), (reward_now, exact_now) = zip(*before, strict=True), zip(*after, strict=True)
    if difference(reward_then, reward_now) > SURE and difference(exact_then, exact_now) < -SURE:
        what = (
            f"From the first to the last third of the roll-outs the mean reward rises from {fmean(reward_then):.3f} to "
            f"{fmean(reward_now):.3f}, and the share of right answers falls from {fmean(exact_then):.3f} to "
            f"{fmean(exact_now):.3f}."
        )
        yield finding(facts.folder, "TP447", layout.ROLLOUTS, what)


def completions_differ_between_prompts(facts: Facts) -> Iterator[Problem]:
    """Yield a warning where nearly all completions of the last third, to different prompts, are one text."""
    if (run := rewarded_run(facts)) is None or not run.steps:
        return
    _, steps = _ends(list(run.steps))
    rows = [row for step in steps for _, row in run.steps[step]]
    [(text, count)] = Counter(row["completion"] for row in rows).most_common(1)
    prompts = len({row["prompt"] for row in rows})
    if prompts >= FEWEST_GROUPS and count >= MOSTLY * len(rows):
        what = f"{count:,} of the last {len(rows):,} completions, to {prompts} prompts, are {format_value(text)}."
        yield finding(facts.folder, "TP448", layout.ROLLOUTS, what)


def completions_end(facts: Facts) -> Iterator[Problem]:
    """Yield a warning where the last quarter of steps has completions twice as long as the first, most of them cut."""
    lengths, cut = facts.columns.get("completion_tokens_mean"), facts.columns.get("truncated_share")
    if lengths is None or cut is None or np.isfinite(lengths).sum() < FEWEST_ROWS:
        return
    lengths, cut = lengths[np.isfinite(lengths)], cut[np.isfinite(lengths)]
    quarter = len(lengths) // 4
    then, now = float(lengths[:quarter].mean()), float(lengths[-quarter:].mean())
    cut_then, cut_now = float(cut[:quarter].mean()), float(cut[-quarter:].mean())
    if now >= 2 * then and cut_now >= 0.5 > 2 * cut_then:
        what = (
            f"Completions have {then:.1f} tokens in the first quarter of the rows and {now:.1f} in the last; "
            f"{cut_then:.0%} and {cut_now:.0%} of them are cut."
        )
        yield finding(facts.folder, "TP449", layout.METRICS, what, pointer="/completion_tokens_mean")


def parts_tell_completions_apart(facts: Facts) -> Iterator[Problem]:
    """Yield a warning for each part with a weight that is the same for every completion."""
    run = rewarded_run(facts)
    if run is None or len(run.rollouts) < FEWEST_COMPLETIONS:
        return
    for reward in run.rewards:
        values = {row["rewards"].get(reward.name) for row in run.rollouts}
        if len(values) == 1 and reward.weight and len(run.steps) > 1:
            what = f"{reward.name} is {format_value(values.pop())} in all {len(run.rollouts):,} completions."
            yield finding(facts.folder, "TP450", layout.ROLLOUTS, what)


def difference(before: Sequence[float], after: Sequence[float]) -> float:
    """Return how much larger the second mean is, in standard errors; without spread 0 or infinite.

    >>> difference([0, 1, 0, 1], [1, 2, 1, 2]), difference([1, 1], [1, 1]), difference([1, 1], [0, 0])
    (2.449489742783178, 0.0, -inf)
    """
    apart = fmean(after) - fmean(before)
    error = math.sqrt(variance(before) / len(before) + variance(after) / len(after))
    return apart / error if error else math.copysign(math.inf, apart) if apart else 0.0


def _means(run: RewardedRun, exact: Reward, step: int) -> list[tuple[float, float]]:
    """Return mean reward and share of right answers of each group of a step of which both are known."""
    groups: dict[int, list[Document]] = defaultdict(list)
    for _, row in run.steps[step]:
        groups[row["group"]].append(row)
    found = []
    for rows in groups.values():
        right = [row["rewards"].get("exact", run.again(exact, row)) for row in rows]
        worth = [row["reward"] for row in rows]
        if None not in right and None not in worth:
            found.append((fmean(worth), fmean(right)))
    return found


def _ends(steps: list[int]) -> tuple[list[int], list[int]]:
    """Return the first and the last third of steps, at least one each."""
    third = max(1, len(steps) // 3)
    return steps[:third], steps[-third:]


CHECKS = (
    rewards_pay_for_right_answers,
    completions_differ_between_prompts,
    completions_end,
    parts_tell_completions_apart,
)
