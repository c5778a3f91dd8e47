"""Compute the rewards, advantages and groups of rollouts.jsonl again.

Built-in rewards are computed from the completion and its dataset row, if the dataset's file is available. A user's own
reward functions are never executed; a note names the rewards that were not checked.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean

import numpy as np

from evidence.layout import CONFIG, METRICS, ROLLOUTS
from evidence.registry import dataset_file, dataset_rows
from evidence.rewards import Attempt, Reward, advantages, build_rewards, parse_terms, total_reward
from evidence.rules.checker import Checker, ValidRun, rule
from evidence.rules.results import report_rows
from evidence.rules.scores import recorded_scoring
from evidence.run import Document, Run, same
from evidence.scores.overlap import row_texts
from evidence.scores.reading import Scoring
from schemas.formats import format_value, join_words
from schemas.problems import ProblemError
from schemas.reading import get_path

SAMPLER_GAPS = {"float32": 1e-3, "bfloat16": 0.2, "float16": 0.03}
"""Largest difference of log-probabilities, in nats, by compute type: at least six times the largest difference that
benchmarks/results/sampler_gap.json measured when sampler and trainer had the same parameters."""
_MEAN_TOLERANCE = 1e-6
"""Relative; the trainer adds in another order."""
_FEWEST_PROMPTS = 8
_FEWEST_COMPLETIONS = 32
_COLLAPSED_FRACTION = 0.9


@dataclass(frozen=True)
class RewardedRun:
    """The roll-outs of a run with its rewards.

    Attributes:
        run: The run.
        rollouts: Rows of rollouts.jsonl, at least one.
        objective: Settings of the objective.
        rewards: Rewards of the objective.
        scoring: How answers are read, or None if neither log nor evaluation states it.
    """

    run: Run
    rollouts: Sequence[Document]
    objective: Document
    rewards: tuple[Reward, ...]
    scoring: Scoring | None

    @cached_property
    def dataset(self) -> Sequence[Document]:
        """Rows of the dataset; empty if its file is not available."""
        found = dataset_file(self.run)
        return (found and dataset_rows(*found)) or ()

    @cached_property
    def steps(self) -> Mapping[int, list[tuple[int, Document]]]:
        """Lines and rows by step, without the incomplete last step of a run that was stopped."""
        steps: dict[int, list[tuple[int, Document]]] = defaultdict(list)
        for line, row in enumerate(self.rollouts, start=1):
            steps[row["step"]].append((line, row))
        last = next(reversed(steps))
        if not self.run.is_sealed and not self.is_complete(steps[last]):
            del steps[last]
        return steps

    def is_complete(self, step: Sequence[tuple[int, Document]]) -> bool:
        """Return whether a step has each sample of each group exactly once."""
        size = self.objective["group_size"]
        places = sorted((row["group"], row["sample"]) for _, row in step)
        return places == [divmod(place, size) for place in range(len(places))] and len(places) % size == 0

    def dataset_row(self, rollout: Document) -> Document | None:
        """Return the dataset row of a completion, or None if it is not available, as generated rows are not."""
        return self.dataset[rollout["row"]] if rollout["row"] < len(self.dataset) else None

    def compute(self, reward: Reward, rollout: Document) -> float | None:
        """Return the reward of a completion, or None if it cannot be computed here."""
        row, finished = self.dataset_row(rollout) or {}, rollout["finish_reason"] == "stop"
        if not reward.is_ours or self.scoring is None or reward.missing(row) is not None:
            return None
        attempt = Attempt(prompt=rollout["prompt"], text=rollout["completion"], row=row, finished=finished)
        try:
            return reward.score(attempt)
        except ProblemError:
            return None


def rewarded_run(run: Run) -> RewardedRun | None:
    """Return the roll-outs of a run, or None if they are missing or the rewards are not valid."""
    objective: Document = get_path(run.config, "objective") or {}
    if not run.rollouts or objective.get("kind") != "grpo":
        return None
    scoring = recorded_scoring(run)
    try:
        terms = parse_terms(objective.get("rewards"), file=CONFIG)
        rewards = build_rewards(terms, scoring or Scoring(), file=CONFIG, execute=False)
    except ProblemError:
        return None
    return RewardedRun(run, run.rollouts, objective, rewards, scoring)


@rule("TP391", "rollouts")
def rewards(run: ValidRun, check: Checker) -> None:
    """Compute rewards and their sums again, compare prompts with the dataset, and note rewards that were skipped."""
    if (grpo := rewarded_run(run)) is None:
        return
    names, skipped = sorted(reward.name for reward in grpo.rewards), set()
    for line, rollout in enumerate(grpo.rollouts, start=1):
        row, parts = grpo.dataset_row(rollout), rollout["rewards"]
        if row is not None:
            prompt, source = row_texts(row)[0][-1], f"row {rollout['row']} of the dataset"
            check.equal(ROLLOUTS, "/prompt", rollout["prompt"], prompt, source, line=line, code="TP393")
        if sorted(parts) != names:
            stated = join_words(sorted(parts) or ["nothing"], "and")
            what = f"rewards has {stated}; config.yaml has {join_words(names, 'and')}."
            check.report(ROLLOUTS, what, "/rewards", line=line)
            continue
        for reward in grpo.rewards:
            stated, expected = parts[reward.name], grpo.compute(reward, rollout)
            if expected is None:
                skipped.add(f"{reward.name} ({'dataset row not available' if reward.is_ours else 'user code'})")
            elif stated is not None:
                source = f"the completion {format_value(rollout['completion'])}"
                check.equal(ROLLOUTS, f"/rewards/{reward.name}", stated, expected, source, line=line)
        total = None if None in parts.values() else total_reward(grpo.rewards, parts)
        check.equal(ROLLOUTS, "/reward", rollout["reward"], total, "the sum of its parts", line=line)
    if skipped:
        what = f"Not computed again: {join_words(sorted(skipped), 'and')}. Sums and advantages were."
        check.report(ROLLOUTS, what, code="TP395")


@rule("TP392", "rollouts")
def group_advantages(run: ValidRun, check: Checker) -> None:
    """Compute the advantages of each step again, and which completions are learned from."""
    if (grpo := rewarded_run(run)) is None:
        return
    for rows in grpo.steps.values():
        groups: dict[int, list[tuple[int, Document]]] = defaultdict(list)
        for line, row in rows:
            if row["reward"] is not None:
                groups[row["group"]].append((line, row))
            elif row["advantage"] or row["is_used"]:
                check.report(ROLLOUTS, "A completion without a reward is learned from.", "/is_used", line=line)
        values = [[row["reward"] for _, row in group] for group in groups.values()]
        computed = advantages(values, grpo.objective["scale_rewards"])
        for group, expected in zip(groups.values(), computed, strict=True):
            for (line, row), value in zip(group, expected, strict=True):
                is_masked = grpo.objective["mask_truncated"] and row["finish_reason"] == "length"
                stated = float(row["advantage"])
                check.equal(ROLLOUTS, "/advantage", stated, value, "its group", line=line)
                if same(stated, value):
                    is_used, source = any(expected) and not is_masked, "its finish_reason" if is_masked else "its group"
                    check.equal(ROLLOUTS, "/is_used", row["is_used"], is_used, source, line=line)


@rule("TP393", "rollouts")
def groups_of_steps(run: ValidRun, check: Checker) -> None:
    """Check the groups and lengths of the completions of each step, and their means in metrics.jsonl."""
    if (grpo := rewarded_run(run)) is None:
        return
    limit, size = grpo.objective["max_completion_tokens"], grpo.objective["group_size"]
    metrics = {row["step"]: (line, row) for line, row in enumerate(run.metrics or (), start=1)}
    for step, rows in grpo.steps.items():
        what = f"Step {step} has {len(rows)} completions, which are not complete groups of {size}."
        check.require(grpo.is_complete(rows), ROLLOUTS, what, "/group", line=rows[0][0])
        for line, row in rows:
            tokens, reason = len(row.get("token_ids", ())), row["finish_reason"]
            what = f"{tokens} tokens ended by {reason}, but max_completion_tokens is {limit}."
            fits = tokens == limit if reason == "length" and "token_ids" in row else tokens <= limit
            check.require(fits, ROLLOUTS, what, "/token_ids", line=line)
        values = [row["reward"] for _, row in rows if row["reward"] is not None]
        line, stated = metrics.get(step, (0, {}))
        for name, expected in (
            ("reward_mean", fmean(values) if values else 0.0),
            ("truncated_share", fmean(row["finish_reason"] == "length" for _, row in rows)),
        ):
            if name in stated and abs(stated[name] - expected) > _MEAN_TOLERANCE * max(1.0, abs(expected)):
                check.equal(METRICS, f"/{name}", stated[name], expected, f"step {step} of {ROLLOUTS}", line=line)


@rule("TP394", "model", "metrics")
def sampler_gap(run: ValidRun, check: Checker) -> None:
    """Check that completions were sampled with the parameters that were trained."""
    compute = run.model["dtypes"]["compute"]
    limit, gap = SAMPLER_GAPS.get(compute, SAMPLER_GAPS["float32"]), run.columns["sampler_gap"]
    if gap is not None:
        what = f"sampler_gap is {{:.3g}} nats; the limit for {compute} is {limit:g}."
        report_rows(check, np.nan_to_num(gap) > limit, "sampler_gap", what, gap)


@rule("TP448", "rollouts")
def collapse(run: ValidRun, check: Checker) -> None:
    """Warn if nearly all of the last completions are one text for different prompts, or if a reward is constant."""
    grpo = rewarded_run(run)
    if grpo is None or not grpo.steps:
        return
    last = list(grpo.steps.values())[-max(1, len(grpo.steps) // 3) :]
    rows = [row for step in last for _, row in step]
    [(text, count)] = Counter(row["completion"] for row in rows).most_common(1)
    prompts = len({row["prompt"] for row in rows})
    what = f"{count:,} of the last {len(rows):,} completions, for {prompts} prompts, are {format_value(text)}."
    check.require(prompts < _FEWEST_PROMPTS or count < _COLLAPSED_FRACTION * len(rows), ROLLOUTS, what)
    is_long = len(grpo.rollouts) >= _FEWEST_COMPLETIONS and len(grpo.steps) > 1
    for reward in grpo.rewards if is_long else ():
        values = {row["rewards"].get(reward.name) for row in grpo.rollouts}
        what = f"{reward.name} is {format_value(next(iter(values)))} for all {len(grpo.rollouts):,} completions."
        check.require(len(values) > 1 or not reward.weight, ROLLOUTS, what, code="TP450")
