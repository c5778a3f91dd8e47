"""Roll-outs: what the model itself writes to the prompts of a step, what it is worth, and the batch that comes of it.

They follow from seed, step and the state before it, so that a checkpoint is enough to draw them again. The program that
draws is the one that evaluates, with the parameters that are trained: no copy of them can be stale.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev
from typing import Any

import jax
import numpy as np

from evidence.rewards import (
    Attempt,
    Reward,
    advantages,
    build_rewards,
    find_unusable_rows,
    parse_terms,
    score_parts,
    total_reward,
)
from schemas.problems import Problem, ProblemError, problem_of
from trainer.data.conversations import Tokenizer, end_token_id, row_prompt
from trainer.data.order import HostBatch
from trainer.generate.decode import Completion
from trainer.generate.groups import DrawnCompletion, GroupPrograms, row_keys
from trainer.loop.mesh import rows_sharding
from trainer.loop.step import Params, TrainState
from trainer.loop.task import Task, without_reference
from trainer.methods.method import combine
from trainer.objectives.data import Data
from trainer.objectives.grpo import GroupPolicy

ROLLOUTS = 0x726F6C6C
"""Folded into the run's key, so that no other draw of a step is equal to these."""

MOST_WORTHLESS = 0.05
"""Share of a step's completions whose reward may fail before the run does."""


@dataclass(frozen=True, kw_only=True)
class Rollout:
    """What was drawn for a step."""

    batch: HostBatch
    """Arrays `[accum batch …]` as the objective describes them."""
    figures: dict[str, float]
    """Fields of the step's row."""
    rows: tuple[dict[str, Any], ...]
    """Each completion as `rollouts.jsonl` holds it."""
    failures: tuple[Problem, ...]
    """Completions whose reward could not be computed."""


@dataclass(frozen=True, kw_only=True)
class Rollouts:
    """What draws the completions of a step and rewards them."""

    objective: GroupPolicy
    task: Task
    rows: Sequence[dict[str, Any]]
    """Of the dataset."""
    tokenizer: Tokenizer
    programs: GroupPrograms
    rewards: tuple[Reward, ...]

    def is_due(self, step: int) -> bool:
        """Return whether the update after `step` steps needs new completions."""
        return step % self.objective.updates_per_rollout == 0

    def draw(self, step: int, prompts: HostBatch, state: TrainState, frozen: Params) -> Rollout:
        """Return the completions to a step's prompts.

        Args:
            step: steps done before.
            prompts: `prompts`, `lengths` and `rows`, as the objective collates them, in one microbatch.
            state: before the step.
            frozen: the parameters that do not learn.

        Raises:
            ProblemError: exit code 1; the rewards of too many completions could not be computed.
        """
        began = time.perf_counter()
        tokens, lengths, rows = prompts["prompts"][0], prompts["lengths"][0], prompts["rows"][0].tolist()
        key = jax.random.fold_in(jax.random.key(self.task.config.seed), ROLLOUTS)
        keys = row_keys(
            jax.random.fold_in(key, step), draw_numbers(rows, len(self.rows)), self.objective.sequences_each
        )
        drawn = self.programs.draw(combine(state.trained, without_reference(frozen)), tokens, lengths, keys=keys)
        written, failures = self._reward(step + 1, rows, drawn)
        return Rollout(
            batch=self._batch(tokens, lengths, drawn, written),
            figures={**figures_of(written, drawn), "rollout_seconds": time.perf_counter() - began},
            rows=tuple(written),
            failures=tuple(failures),
        )

    def _reward(
        self, step: int, rows: Sequence[int], drawn: Sequence[DrawnCompletion]
    ) -> tuple[list[dict[str, Any]], list[Problem]]:
        """Return each completion as a row of `rollouts.jsonl`, and those that could not be rewarded."""
        size, failures = self.objective.sequences_each, list[Problem]()
        written = []
        for number, each in enumerate(drawn):
            row, reason = rows[number // size], each.written.finish_reason
            attempt = Attempt(
                prompt=row_prompt(self.rows[row]),
                text=text_of(each.written, self.tokenizer),
                row=self.rows[row],
                finished=reason == "stop",
            )
            parts, total, failed = worth_of(self.rewards, attempt)
            failures += failed
            written.append(
                {
                    "step": step,
                    "group": number // size,
                    "sample": number % size,
                    "row": row,
                    "prompt": attempt.prompt,
                    "completion": attempt.text,
                    "token_ids": list(each.written.tokens),
                    "finish_reason": reason,
                    "rewards": parts,
                    "reward": total,
                    "advantage": 0.0,
                    "is_used": False,
                    "sampled_logprob_sum": float(np.sum(each.log_probs, dtype=np.float64)),
                }
            )
        if len(failures) > MOST_WORTHLESS * len(written):
            raise ProblemError([_too_many(failures, len(written), self.task.config.name), *failures[:3]])
        self._compare(written)
        return written, failures

    def _compare(self, written: Sequence[dict[str, Any]]) -> None:
        """Write the advantage of each completion, and whether it is learned from, into the rows of a step."""
        settings, size = self.objective.settings, self.objective.sequences_each
        groups = [written[first : first + size] for first in range(0, len(written), size)]
        rewarded = [[row for row in group if row["reward"] is not None] for group in groups]
        found = advantages([[row["reward"] for row in group] for group in rewarded], settings.scale_rewards)
        for group, values in zip(rewarded, found, strict=True):
            for row, advantage in zip(group, values, strict=True):
                cut = settings.mask_truncated and row["finish_reason"] == "length"
                row["advantage"], row["is_used"] = advantage, any(values) and not cut

    def _batch(
        self,
        prompts: np.ndarray,
        lengths: np.ndarray,
        drawn: Sequence[DrawnCompletion],
        written: Sequence[dict[str, Any]],
    ) -> HostBatch:
        """Return the arrays of the train step: each prompt with its completion behind it, padded on the right."""
        size, length = self.objective.sequences_each, self.objective.max_length
        tokens = np.zeros((len(drawn), length), np.int32)
        loss_mask = np.zeros((len(drawn), length), np.bool_)
        old_log_probs = np.zeros((len(drawn), length), np.float32)
        for number, (each, row) in enumerate(zip(drawn, written, strict=True)):
            begins = int(lengths[number // size])
            ends = begins + len(each.written.tokens)
            tokens[number, :begins] = prompts[number // size, prompts.shape[1] - begins :]
            tokens[number, begins:ends] = each.written.tokens
            old_log_probs[number, begins:ends] = each.log_probs
            loss_mask[number, begins:ends] = row["is_used"]
        arrays = {
            "tokens": tokens,
            "loss_mask": loss_mask,
            "old_log_probs": old_log_probs,
            "advantages": np.array([row["advantage"] for row in written], np.float32),
        }
        count = self.task.config.batch.accumulation_steps
        return {name: array.reshape(count, -1, *array.shape[1:]) for name, array in arrays.items()}


def rollouts_of(task: Task, data: Data) -> Rollouts | None:
    """Return what draws the completions of a run, None where its objective draws none.

    Raises:
        ProblemError: exit code 2; the rewards of the configuration cannot be made, or rows lack what they need.
    """
    objective, file = task.objective, task.config.name
    if not isinstance(objective, GroupPolicy):
        return None
    rewards = build_rewards(parse_terms(objective.settings.rewards, file=file), data.scoring, file=file)
    dataset = data.dataset
    if problems := find_unusable_rows(rewards, data.rows, file=str(dataset.path), lines=dataset.lines):
        raise ProblemError(problems, exit_code=2)
    return Rollouts(
        objective=objective,
        task=task,
        rows=data.rows,
        tokenizer=data.tokenizer,
        programs=GroupPrograms(
            graphdef=task.model.graphdef,
            group_size=objective.sequences_each,
            max_new_tokens=objective.settings.max_completion_tokens,
            stop_token_id=end_token_id(data.tokenizer, data.form),
            sampling=objective.sampling,
            options=task.compiler_options,
            sharding=rows_sharding(task.mesh),
        ),
        rewards=rewards,
    )


def draw_numbers(rows: Sequence[int], count: int) -> list[int]:
    """Return a number for each row of a step that no other row of it has: a row that stands twice draws twice.

    `draw_numbers([4, 1, 4], 10)` is `[4, 1, 14]`.
    """
    seen = Counter[int]()
    found = []
    for row in rows:
        found.append(row + count * seen[row])
        seen[row] += 1
    return found


def worth_of(
    rewards: Sequence[Reward], attempt: Attempt
) -> tuple[dict[str, float | None], float | None, list[Problem]]:
    """Return the parts of a completion's reward, their sum, and what kept them from being computed."""
    try:
        parts = score_parts(rewards, attempt)
    except ProblemError as error:
        return {reward.name: None for reward in rewards}, None, list(error.problems[:1])
    return dict(parts), total_reward(rewards, parts), []


def text_of(written: Completion, tokenizer: Tokenizer) -> str:
    """Return the text of a completion, without the token that ended it."""
    return str(tokenizer.decode(list(written.tokens[:-1] if written.finish_reason == "stop" else written.tokens)))


def figures_of(written: Sequence[dict[str, Any]], drawn: Sequence[DrawnCompletion]) -> dict[str, float]:
    """Return what a step's row states of its completions."""
    worth = [row["reward"] for row in written if row["reward"] is not None]
    groups: dict[int, set[float | None]] = {}
    for row in written:
        groups.setdefault(row["group"], set()).add(row["reward"])
    lengths = [len(each.written.tokens) for each in drawn]
    return {
        "reward_mean": fmean(worth) if worth else 0.0,
        "reward_std": pstdev(worth) if worth else 0.0,
        "flat_groups": fmean(len(rewards) == 1 for rewards in groups.values()),
        "completion_tokens_mean": fmean(lengths),
        "completion_tokens_max": float(max(lengths)),
        "truncated_share": fmean(row["finish_reason"] == "length" for row in written),
        "distinct_completions": float(len({(row["group"], tuple(row["token_ids"])) for row in written})),
        "entropy": float(np.mean(np.concatenate([each.entropies for each in drawn]), dtype=np.float64)),
    }


def _too_many(failures: Sequence[Problem], count: int, file: str) -> Problem:
    what = f"The rewards of {len(failures)} of {count} completions of a step could not be computed; the first follow."
    return problem_of("TP926", file=file, pointer="/objective/rewards", what=what)
