"""What rollouts.jsonl states of completions, computed again: rewards, sums, advantages; and who drew the completions.

Rewards that are ours are computed from the completion and the dataset's row, where its file is here. Code of others is
never executed; what was not computed again is named in a note.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import Any

import numpy as np

from evidence.records.dataset import dataset_file, dataset_rows
from evidence.records.facts import Document, Facts, finding, same
from evidence.rewards import Attempt, Reward, advantages, rewards_of, total_reward
from evidence.rewards.terms import terms_of
from evidence.run import layout
from evidence.scores.overlap import row_texts
from evidence.scores.reading import Scoring, scoring_of
from schemas.formats import format_value, join_words
from schemas.problems import Problem, ProblemError, truncate_problems

SAMPLER_GAPS = {"float32": 1e-3, "bfloat16": 0.2, "float16": 0.03}
"""Largest difference of log-probabilities, in nats, by the type that is computed in: six times or more the largest that
benchmarks/sampler_gap.py saw where sampler and trainer have the same parameters."""
FIGURES = 1e-6
"""Share by which a mean of a metric row may differ from that of the roll-outs, in another order of adding."""


@dataclass(frozen=True, kw_only=True)
class RewardedRun:
    """The roll-outs of a run and what is needed to compute them again."""

    facts: Facts
    rollouts: Sequence[Document]
    objective: Document
    rewards: tuple[Reward, ...]
    scoring: Scoring | None
    """How answers were read. None: it is not stated."""

    @cached_property
    def rows(self) -> Sequence[Document] | None:
        """The dataset's rows. None: its file is not here."""
        found = dataset_file(self.facts)
        return None if found is None else dataset_rows(*found)

    @cached_property
    def steps(self) -> Mapping[int, list[tuple[int, Document]]]:
        """Lines and rows by step; the last step of a run that was stopped may be cut, and is left out then."""
        found: dict[int, list[tuple[int, Document]]] = defaultdict(list)
        for line, row in enumerate(self.rollouts, start=1):
            found[row["step"]].append((line, row))
        last = next(reversed(found))
        if not self.facts.is_sealed and not self.is_whole(found[last]):
            del found[last]
        return found

    def is_whole(self, step: Sequence[tuple[int, Document]]) -> bool:
        """Return whether a step has each completion of each of its groups once."""
        size = self.objective["group_size"]
        places = sorted((row["group"], row["sample"]) for _, row in step)
        return places == [divmod(place, size) for place in range(len(places))] and len(places) % size == 0

    def row_of(self, rollout: Document) -> Document | None:
        """Return the dataset row of a completion, or None if it is not here, as generated rows are not."""
        return self.rows[rollout["row"]] if self.rows is not None and rollout["row"] < len(self.rows) else None

    def can_repeat(self, reward: Reward, rollout: Document) -> bool:
        """Return whether what a reward gives a completion can be computed here."""
        return reward.is_ours and self.scoring is not None and reward.rule.lacks(self.row_of(rollout) or {}) is None

    def again(self, reward: Reward, rollout: Document) -> float | None:
        """Return what a reward gives a completion, or None if it cannot be computed here."""
        if not self.can_repeat(reward, rollout):
            return None
        row = self.row_of(rollout)
        attempt = Attempt(
            prompt=rollout["prompt"],
            text=rollout["completion"],
            row=row or {},
            finished=rollout["finish_reason"] == "stop",
        )
        try:
            return reward.score(attempt)
        except ProblemError:
            return None


def rewarded_run(facts: Facts) -> RewardedRun | None:
    """Return a run's roll-outs with its rewards, or None if it has no roll-outs, or no rewards that can be read."""
    objective: Document = (facts.config or {}).get("objective") or {}
    if not facts.rollouts or objective.get("kind") != "grpo":
        return None
    scoring = scoring_in(facts)
    try:
        terms = terms_of(objective.get("rewards"), file=layout.CONFIG)
        rewards = rewards_of(terms, scoring or Scoring(), file=layout.CONFIG, execute=False)
    except ProblemError:
        return None
    return RewardedRun(facts=facts, rollouts=facts.rollouts, objective=objective, rewards=rewards, scoring=scoring)


def scoring_in(facts: Facts) -> Scoring | None:
    """Return how a run read answers, as its log or its evaluation states, or None if neither does."""
    stated = [record["fields"] for record in facts.log or () if record["event"] == "scoring"]
    if stated and {"answer", "answer_regex", "compare", "tolerance"} <= stated[-1].keys():
        return scoring_of({"scoring": stated[-1]})
    return None if facts.eval_summary is None else scoring_of(facts.eval_summary)


def rewards_follow_from_completions(facts: Facts) -> Iterator[Problem]:
    """Yield problems for rewards, sums and prompts that are not those of the completion and its row."""
    if (run := rewarded_run(facts)) is not None:
        yield from truncate_problems(_other_rewards(run))
        yield from _not_again(run)


def advantages_follow_from_rewards(facts: Facts) -> Iterator[Problem]:
    """Yield problems for advantages, for what is learned from, for groups with gaps, and for figures of other ones."""
    if (run := rewarded_run(facts)) is None:
        return
    figures = {row["step"]: (line, row) for line, row in enumerate(facts.metrics or (), start=1)}
    yield from truncate_problems(_other_groups(run))
    yield from truncate_problems(_other_advantages(run))
    yield from truncate_problems(_other_figures(run, figures))


def sampler_has_the_trained_weights(facts: Facts) -> Iterator[Problem]:
    """Yield the first step whose tokens were drawn with other log-probabilities than they were trained on."""
    gaps = facts.columns.get("sampler_gap")
    if gaps is None or facts.model is None or not len(gaps):
        return
    compute = facts.model["dtypes"]["compute"]
    most = SAMPLER_GAPS.get(compute, SAMPLER_GAPS["float32"])
    wrong = np.flatnonzero(np.nan_to_num(gaps) > most)
    if len(wrong):
        first, more = int(wrong[0]), f", and so at {len(wrong) - 1} more rows" if len(wrong) > 1 else ""
        step = facts.columns["step"][first]
        what = f"sampler_gap is {gaps[first]:.3g} nats at step {step:.0f}{more}; computed in {compute}."
        expected = f"at most {most:g}"
        yield finding(
            facts.folder, "TP394", layout.METRICS, what, expected=expected, line=first + 1, pointer="/sampler_gap"
        )


def _other_rewards(run: RewardedRun) -> Iterator[Problem]:
    names = {reward.name for reward in run.rewards}
    for line, rollout in enumerate(run.rollouts, start=1):
        row, parts = run.row_of(rollout), rollout["rewards"]
        if row is not None and row_texts(row)[0][-1] != rollout["prompt"]:
            what = f"The prompt is {format_value(rollout['prompt'])}; row {rollout['row']} of the dataset has another."
            yield _problem(run, "TP393", what, line, "/prompt")
        if set(parts) != names:
            what = f"Rewards are stated for {join_words(sorted(parts), 'and') if parts else 'nothing'}."
            yield _problem(run, "TP391", what, line, "/rewards", join_words(sorted(names), "and"))
            continue
        for reward in run.rewards:
            value, right = parts[reward.name], run.again(reward, rollout)
            if value is not None and right is not None and not same(value, right):
                what = f"{reward.name} is {value:g} for {format_value(rollout['completion'])}, which gives {right:g}."
                yield _problem(run, "TP391", what, line, f"/rewards/{reward.name}", f"{right:g}")
        total = None if None in parts.values() else total_reward(run.rewards, parts)
        if not same(rollout["reward"], total):
            what = f"reward is {format_value(rollout['reward'])}; its parts give {format_value(total)}."
            yield _problem(run, "TP391", what, line, "/reward", format_value(total))


def _not_again(run: RewardedRun) -> Iterator[Problem]:
    """Yield a note that names the rewards of which a part or all was not computed again."""
    left_out = [
        f"{reward.name} ({'code of others' if not reward.is_ours else 'the row of a completion is not here'})"
        for reward in run.rewards
        if not all(run.can_repeat(reward, rollout) for rollout in run.rollouts)
    ]
    if left_out:
        what = f"Not computed again: {join_words(left_out, 'and')}. Sums and advantages were."
        yield finding(run.facts.folder, "TP395", layout.ROLLOUTS, what)


def _other_groups(run: RewardedRun) -> Iterator[Problem]:
    most = run.objective["max_completion_tokens"]
    for step, lines in run.steps.items():
        if not run.is_whole(lines):
            what = f"Step {step} has {len(lines)} completions, not each of its groups of {run.objective['group_size']}."
            yield _problem(run, "TP393", what, lines[0][0], "/group")
        for line, row in lines:
            tokens = len(row.get("token_ids", ()))
            if tokens > most or ("token_ids" in row and row["finish_reason"] == "length" and tokens != most):
                what = f"The completion has {tokens} tokens, ended by {row['finish_reason']}; the limit is {most}."
                yield _problem(run, "TP393", what, line, "/token_ids")


def _other_advantages(run: RewardedRun) -> Iterator[Problem]:
    masks = run.objective["mask_truncated"]
    for lines in run.steps.values():
        groups: dict[int, list[tuple[int, Document]]] = defaultdict(list)
        for line, row in lines:
            if row["reward"] is not None:
                groups[row["group"]].append((line, row))
            elif row["advantage"] or row["is_used"]:
                yield _problem(run, "TP392", "A completion without a reward is learned from.", line, "/is_used")
        stated = [[row["reward"] for _, row in group] for group in groups.values()]
        for group, values in zip(groups.values(), advantages(stated, run.objective["scale_rewards"]), strict=True):
            for (line, row), value in zip(group, values, strict=True):
                is_used = any(values) and not (masks and row["finish_reason"] == "length")
                if not same(float(row["advantage"]), value):
                    what = f"advantage is {row['advantage']:g}; the rewards of its group give {value:g}."
                    yield _problem(run, "TP392", what, line, "/advantage", f"{value:g}")
                elif row["is_used"] != is_used:
                    what = (
                        f"is_used is {format_value(row['is_used'])}; group and finish_reason give "
                        f"{format_value(is_used)}."
                    )
                    yield _problem(run, "TP392", what, line, "/is_used", format_value(is_used))


def _other_figures(run: RewardedRun, figures: Mapping[int, tuple[int, Document]]) -> Iterator[Problem]:
    for step, lines in run.steps.items():
        line, row = figures.get(step, (0, {}))
        worth = [rollout["reward"] for _, rollout in lines if rollout["reward"] is not None]
        right = {
            "reward_mean": fmean(worth) if worth else 0.0,
            "truncated_share": fmean(rollout["finish_reason"] == "length" for _, rollout in lines),
        }
        for name, value in right.items():
            if name in row and abs(row[name] - value) > FIGURES * max(1.0, abs(value)):
                what = f"{name} of step {step} is {row[name]:g}; {layout.ROLLOUTS} gives {value:g}."
                yield finding(
                    run.facts.folder,
                    "TP393",
                    layout.METRICS,
                    what,
                    expected=f"{value:g}",
                    line=line,
                    pointer=f"/{name}",
                )


def _problem(run: RewardedRun, code: str, what: str, line: int, pointer: str, expected: str | None = None) -> Problem:
    more: dict[str, Any] = {"line": line, "pointer": pointer, "expected": expected}
    return finding(run.facts.folder, code, layout.ROLLOUTS, what, **more)


CHECKS = (rewards_follow_from_completions, advantages_follow_from_rewards, sampler_has_the_trained_weights)
