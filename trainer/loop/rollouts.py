"""Rollouts: sample completions to the prompts of a step, reward them, and build the batch that the step learns from.

Completions follow from seed, step and the state before it, so a checkpoint is enough to sample them again. The program
that samples is the one that evaluates, with the parameters being trained.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from evidence.rewards import (
    Attempt,
    Reward,
    advantages,
    build_rewards,
    find_unusable_rows,
    logged_rollout_steps,
    parse_terms,
    score_parts,
    total_reward,
)
from schemas.problems import Problem, ProblemError, problem_of
from schemas.render import as_sentence
from trainer.data.batches import BatchSource, HostBatch, global_batch_size
from trainer.data.conversations import Tokenizer, end_token_id, row_prompt
from trainer.generate.decode import Completion
from trainer.generate.groups import DrawnCompletion, GroupPrograms, group_functions, half_rows, row_keys
from trainer.loop.compilation import Program
from trainer.loop.mesh import rows_sharding
from trainer.loop.state import with_shardings
from trainer.loop.step import Params, TrainState
from trainer.loop.task import Task, without_reference
from trainer.model.model import combine
from trainer.objectives.data import Data
from trainer.objectives.grpo import GroupPolicy

ROLLOUT_STREAM = 0x726F6C6C
"""Folded into the run's key, so that rollouts are independent of every other use of the seed."""

MAX_FAILED = 0.05
"""Fraction of a step's completions whose reward may fail before the run does."""

FLAT_FRACTION = 0.6
"""Fraction of groups with equal rewards above which little is learned."""

FLAT_ROLLOUTS = 20
"""Rollouts in a row above `FLAT_FRACTION` after which a warning is logged."""


@dataclass(frozen=True, kw_only=True)
class RolloutSize:
    """Size of a rollout over all devices."""

    prompts: int
    width: int
    """Padded length of prompts in tokens."""
    group_size: int
    """Completions per prompt."""
    new_tokens: int
    """Most new tokens per completion."""
    updates: int
    """Optimizer steps per rollout."""

    @property
    def rows(self) -> int:
        """Number of completions."""
        return self.prompts * self.group_size

    @property
    def slots(self) -> int:
        """Tokens of a prompt and its completion, padding included."""
        return self.width + self.new_tokens


def rollout_size(task: Task) -> RolloutSize | None:
    """Return the size of a run's rollouts, or None if its objective samples no completions."""
    objective = task.objective
    if not isinstance(objective, GroupPolicy):
        return None
    return RolloutSize(
        prompts=global_batch_size(task.config, devices=task.mesh.size) // objective.sequences_each,
        width=objective.prompt_width,
        group_size=objective.sequences_each,
        new_tokens=objective.settings.max_completion_tokens,
        updates=objective.updates_per_rollout,
    )


def rollout_programs(task: Task) -> dict[str, Program]:
    """Return the programs of a rollout by name, or none if the objective samples no completions.

    `rollout` reads prompts and samples the first tokens, `rollout_further` the following ones, `rollout_taken` selects
    half of the rows, and `rollout_half` continues those.
    """
    size, objective = rollout_size(task), task.objective
    if size is None or not isinstance(objective, GroupPolicy):
        return {}
    rows = rows_sharding(task.mesh)
    first, further, take = group_functions(task.compiler_options, rows)
    shape: Any = jax.ShapeDtypeStruct
    graphdef, params = task.model.graphdef, with_shardings(task.model.shapes, task)
    stop, half = shape((), jnp.int32), half_rows(size.rows, rows)
    counter = shape((), jnp.int32, sharding=NamedSharding(task.mesh, PartitionSpec()))
    prompts = shape((size.prompts, size.width), jnp.int32, sharding=rows)
    lengths = shape((size.prompts,), jnp.int32, sharding=rows)
    keys = shape((size.rows,), jax.eval_shape(lambda: jax.random.key(0)).dtype)
    sampling: dict[str, Any] = {"sampling": objective.sampling}
    settings = sampling | {"max_new_tokens": size.new_tokens}
    begin = Program(
        function=first, arguments=(graphdef, params, prompts, lengths, stop, keys), settings=settings, static=(0,)
    )
    state = first.eval_shape(*begin.arguments, **settings)

    def state_shapes(count: int) -> Any:
        return jax.tree.map(
            lambda leaf: shape((count, *leaf.shape[1:]), leaf.dtype, sharding=rows) if leaf.ndim else counter, state
        )

    def further_program(count: int) -> Program:
        row_lengths = shape((count,), jnp.int32, sharding=rows)
        arguments = (graphdef, params, state_shapes(count), row_lengths, stop, stop)
        return Program(function=further, arguments=arguments, settings=sampling, donated=(2,), static=(0,))

    programs = {"rollout": begin, "rollout_further": further_program(size.rows)}
    if half < size.rows:
        all_lengths, kept = shape((size.rows,), jnp.int32, sharding=rows), shape((half,), jnp.int32)
        arguments = (params, state_shapes(size.rows), all_lengths, kept)
        programs["rollout_taken"] = Program(function=take, arguments=arguments, settings={})
        programs["rollout_half"] = further_program(half)
    return programs


@dataclass(frozen=True, kw_only=True)
class Rollout:
    """Completions of a step."""

    batch: HostBatch
    """Arrays `[accum batch …]` as the objective describes them."""
    figures: dict[str, float]
    """Fields of the step's row."""
    rows: tuple[dict[str, Any], ...]
    """Rows of `rollouts.jsonl`."""
    failures: tuple[Problem, ...]
    """Problems of completions whose reward could not be computed."""


@dataclass(frozen=True, kw_only=True)
class Rollouts:
    """Samples and rewards the completions of steps."""

    objective: GroupPolicy
    task: Task
    rows: Sequence[dict[str, Any]]
    """Rows of the dataset."""
    tokenizer: Tokenizer
    programs: GroupPrograms
    rewards: tuple[Reward, ...]

    def is_due(self, step: int) -> bool:
        """Return whether the update after `step` steps needs new completions."""
        return step % self.objective.updates_per_rollout == 0

    def draw(self, step: int, prompts: HostBatch, state: TrainState, frozen: Params) -> Rollout:
        """Sample the completions of a step.

        Args:
            step: Steps done before.
            prompts: Arrays `prompts`, `lengths` and `rows` from the objective's collate function, one microbatch.
            state: State before the step.
            frozen: Frozen parameters.

        Raises:
            ProblemError: exit code 1; the rewards of too many completions failed.
        """
        began = time.perf_counter()
        tokens, lengths, rows = prompts["prompts"][0], prompts["lengths"][0], prompts["rows"][0].tolist()
        key = jax.random.fold_in(jax.random.fold_in(jax.random.key(self.task.config.seed), ROLLOUT_STREAM), step)
        keys = row_keys(key, draw_numbers(rows, len(self.rows)), self.objective.sequences_each)
        drawn = self.programs.draw(combine(state.trained, without_reference(frozen)), tokens, lengths, keys=keys)
        written, failures = self._reward(step + 1, rows, drawn)
        return Rollout(
            batch=self._batch(tokens, lengths, drawn, written),
            figures={**rollout_figures(written, drawn), "rollout_seconds": time.perf_counter() - began},
            rows=tuple(written),
            failures=tuple(failures),
        )

    def _reward(
        self, step: int, rows: Sequence[int], drawn: Sequence[DrawnCompletion]
    ) -> tuple[list[dict[str, Any]], list[Problem]]:
        """Return each completion as a row of `rollouts.jsonl`, and the problems of failed rewards."""
        size, failures = self.objective.sequences_each, list[Problem]()
        written = []
        for number, each in enumerate(drawn):
            row, reason = rows[number // size], each.written.finish_reason
            attempt = Attempt(
                prompt=row_prompt(self.rows[row]),
                text=completion_text(each.written, self.tokenizer),
                row=self.rows[row],
                finished=reason == "stop",
            )
            parts, total, failed = reward_attempt(self.rewards, attempt)
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
        if len(failures) > MAX_FAILED * len(written):
            what = (
                f"The rewards of {len(failures)} of {len(written)} completions of a step could not be computed; the "
                "first follow."
            )
            problem = problem_of("TP926", file=self.task.config.name, pointer="/objective/rewards", what=what)
            raise ProblemError([problem, *failures[:3]])
        self._add_advantages(written)
        return written, failures

    def _add_advantages(self, written: Sequence[dict[str, Any]]) -> None:
        """Set advantage and `is_used` of each row of a step."""
        settings, size = self.objective.settings, self.objective.sequences_each
        groups = [written[first : first + size] for first in range(0, len(written), size)]
        rewarded = [[row for row in group if row["reward"] is not None] for group in groups]
        found = advantages([[row["reward"] for row in group] for group in rewarded], settings.scale_rewards)
        for group, values in zip(rewarded, found, strict=True):
            for row, advantage in zip(group, values, strict=True):
                is_masked = settings.mask_truncated and row["finish_reason"] == "length"
                row["advantage"], row["is_used"] = advantage, any(values) and not is_masked

    def _batch(
        self,
        prompts: np.ndarray,
        lengths: np.ndarray,
        drawn: Sequence[DrawnCompletion],
        written: Sequence[dict[str, Any]],
    ) -> HostBatch:
        """Return the arrays of the train step: each prompt followed by its completion, padded on the right."""
        size, length = self.objective.sequences_each, self.objective.max_length
        tokens = np.zeros((len(drawn), length), np.int32)
        loss_mask = np.zeros((len(drawn), length), np.bool_)
        old_log_probs = np.zeros((len(drawn), length), np.float32)
        for number, (each, row) in enumerate(zip(drawn, written, strict=True)):
            begin = int(lengths[number // size])
            end = begin + len(each.written.tokens)
            tokens[number, :begin] = prompts[number // size, prompts.shape[1] - begin :]
            tokens[number, begin:end] = each.written.tokens
            old_log_probs[number, begin:end] = each.log_probs
            loss_mask[number, begin:end] = row["is_used"]
        arrays = {
            "tokens": tokens,
            "loss_mask": loss_mask,
            "old_log_probs": old_log_probs,
            "advantages": np.array([row["advantage"] for row in written], np.float32),
        }
        count = self.task.config.batch.accumulation_steps
        return {name: array.reshape(count, -1, *array.shape[1:]) for name, array in arrays.items()}


def build_rollouts(task: Task, data: Data) -> Rollouts | None:
    """Return the rollouts of a run, or None if its objective samples no completions.

    Raises:
        ProblemError: exit code 2; the rewards of the configuration are not valid, or rows lack fields that they need.
    """
    objective, file = task.objective, task.config.name
    if not isinstance(objective, GroupPolicy):
        return None
    rewards = build_rewards(parse_terms(objective.settings.rewards, file=file), data.scoring, file=file)
    if problems := find_unusable_rows(rewards, data.rows, file=str(data.dataset.path), lines=data.dataset.lines):
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
    """Return a distinct number for each row of a step, so that a repeated row gets other samples.

    `draw_numbers([4, 1, 4], 10)` is `[4, 1, 14]`.
    """
    seen = Counter[int]()
    numbers = []
    for row in rows:
        numbers.append(row + count * seen[row])
        seen[row] += 1
    return numbers


def reward_attempt(
    rewards: Sequence[Reward], attempt: Attempt
) -> tuple[dict[str, float | None], float | None, list[Problem]]:
    """Return the parts of a completion's reward, their sum, and the problem if they could not be computed."""
    try:
        parts = score_parts(rewards, attempt)
    except ProblemError as error:
        return {reward.name: None for reward in rewards}, None, list(error.problems[:1])
    return dict(parts), total_reward(rewards, parts), []


def completion_text(written: Completion, tokenizer: Tokenizer) -> str:
    """Decode a completion without its stop token."""
    return str(tokenizer.decode(list(written.tokens[:-1] if written.finish_reason == "stop" else written.tokens)))


def rollout_figures(written: Sequence[dict[str, Any]], drawn: Sequence[DrawnCompletion]) -> dict[str, float]:
    """Return the fields of a step's row about its completions."""
    rewards = [row["reward"] for row in written if row["reward"] is not None]
    groups: dict[int, set[float | None]] = {}
    for row in written:
        groups.setdefault(row["group"], set()).add(row["reward"])
    lengths = [len(each.written.tokens) for each in drawn]
    return {
        "reward_mean": fmean(rewards) if rewards else 0.0,
        "reward_std": pstdev(rewards) if rewards else 0.0,
        "flat_groups": fmean(len(each) == 1 for each in groups.values()),
        "completion_tokens_mean": fmean(lengths),
        "completion_tokens_max": float(max(lengths)),
        "truncated_share": fmean(row["finish_reason"] == "length" for row in written),
        "distinct_completions": float(len({(row["group"], tuple(row["token_ids"])) for row in written})),
        "entropy": float(np.mean(np.concatenate([each.entropies for each in drawn]), dtype=np.float64)),
    }


class RolloutRecorder(Protocol):
    """Records completions and events."""

    def completions(self, rows: Iterable[dict[str, Any]]) -> None:
        """Record the completions of a rollout."""

    def log(self, level: str, event: str, message: str, **fields: Any) -> None:
        """Record an event."""


class StepCompletions:
    """Provides the batches of a loop that learns from its own completions, and records some of them."""

    def __init__(self, rollouts: Rollouts, recorder: RolloutRecorder) -> None:
        self._rollouts = rollouts
        self._recorder = recorder
        self._flat = 0
        steps = rollouts.task.config.limits.steps
        self._logged = frozenset(logged_rollout_steps(steps, rollouts.objective.updates_per_rollout))
        self._figures: dict[str, float] = {}

    def is_due(self, step: int) -> bool:
        """Return whether the update after `step` steps needs new completions."""
        return self._rollouts.is_due(step)

    def batch(self, source: BatchSource, step: int, state: TrainState, frozen: Params) -> HostBatch:
        """Return the batch of the update after `step` steps: completions of the source's next prompts."""
        prompts = source.batch(step // self._rollouts.objective.updates_per_rollout)
        rollout = self._rollouts.draw(step, prompts, state, frozen)
        self._figures = rollout.figures
        if step + 1 in self._logged:
            self._recorder.completions(rollout.rows)
        for problem in rollout.failures:
            message = f"{problem.code}: {as_sentence(problem)}"
            self._recorder.log("warning", "reward_failed", message, code=problem.code, step=step + 1)
        self._flat = self._flat + 1 if rollout.figures["flat_groups"] > FLAT_FRACTION else 0
        if self._flat == FLAT_ROLLOUTS:
            self._recorder.log("warning", "flat_rewards", self._describe_flat(), step=step + 1)
        return rollout.batch

    def row(self, done: int, named: dict[str, float | None], *, update_seconds: float) -> dict[str, float | None]:
        """Return the fields of a step's row about its completions and its update.

        Args:
            done: Steps done.
            named: Metrics of the update.
            update_seconds: Duration of the update.
        """
        fields: dict[str, float | None] = {**named, **self._figures, "update_seconds": update_seconds}
        if not self.is_due(done - 1):
            fields["rollout_seconds"] = 0.0
            del fields["sampler_gap"]  # the parameters have changed since sampling
        return fields

    @property
    def stops(self) -> str | None:
        """Why the run ends before the next rollout, or None."""
        is_flat = self._rollouts.objective.settings.stop_when_flat and self._flat >= FLAT_ROLLOUTS
        return self._describe_flat() if is_flat else None

    def _describe_flat(self) -> str:
        return (
            f"in {FLAT_ROLLOUTS} rollouts in a row more than {FLAT_FRACTION:.0%} of the groups had equal rewards, from "
            "which nothing is learned"
        )
