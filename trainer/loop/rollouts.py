"""Rollouts: sample completions to the prompts of a step, reward them, and build the batch that the step learns from.

Completions follow from seed, step and the state before it, so a checkpoint is enough to sample them again.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import itemgetter
from statistics import fmean, pstdev
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from evidence import layout
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
from schemas.problems import Problem, ProblemError, collect_problems, problem_of
from schemas.render import render_sentence
from trainer.config.tree import ObjectiveConfig
from trainer.data.batches import HostBatch, global_batch_size
from trainer.data.conversations import Tokenizer, end_token_id, row_prompt
from trainer.generate.decode import Completion, DrawnCompletion, GroupPrograms, group_functions, half_rows, row_keys
from trainer.loop.compilation import Program
from trainer.loop.step import Params, TrainState
from trainer.loop.task import Task, add_shardings, drop_reference_params, rows_sharding
from trainer.model.model import combine
from trainer.objectives.data import Data
from trainer.objectives.grpo import GroupPolicy
from trainer.recorder.recorder import Recorder

ROLLOUT_STREAM = 0x726F6C6C
"""Folded into the run's key, so that rollouts are independent of every other use of the seed."""
MAX_FAILED = 0.05
"""Fraction of a step's completions whose reward may fail before the run does."""
FLAT_FRACTION, FLAT_ROLLOUTS = 0.6, 20
"""Fraction of groups with equal rewards, in so many rollouts in a row, after which a warning is logged."""
FLAT = (
    f"in {FLAT_ROLLOUTS} rollouts in a row more than {FLAT_FRACTION:.0%} of the groups had equal rewards, from which "
    "nothing is learned"
)


@dataclass(frozen=True, kw_only=True)
class RolloutSize:
    """Size of a rollout over all devices."""

    prompts: int
    width: int
    """Tokens of padded prompts."""
    group_size: int
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
    size = objective.sequences_each
    return RolloutSize(
        prompts=global_batch_size(task.config, devices=task.mesh.size) // size,
        width=objective.prompt_width,
        group_size=size,
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
    graphdef, params = task.model.graphdef, add_shardings(task.model.shapes, task)
    shape: Any = jax.ShapeDtypeStruct
    sharded = partial(shape, sharding=rows)
    stop, half = shape((), jnp.int32), half_rows(size.rows, rows)
    counter = shape((), jnp.int32, sharding=NamedSharding(task.mesh, PartitionSpec()))
    prompts, lengths = sharded((size.prompts, size.width), jnp.int32), sharded((size.prompts,), jnp.int32)
    keys = shape((size.rows,), jax.eval_shape(lambda: jax.random.key(0)).dtype)
    sampling: dict[str, Any] = {"sampling": objective.sampling}
    settings = sampling | {"max_new_tokens": size.new_tokens}
    arguments: tuple[Any, ...] = (graphdef, params, prompts, lengths, stop, keys)
    begin = Program(function=first, arguments=arguments, settings=settings)
    state = first.eval_shape(*arguments, **settings)

    def state_shapes(count: int) -> Any:
        return jax.tree.map(lambda leaf: sharded((count, *leaf.shape[1:]), leaf.dtype) if leaf.ndim else counter, state)

    def further_program(count: int) -> Program:
        arguments = (graphdef, params, state_shapes(count), sharded((count,), jnp.int32), stop, stop)
        return Program(function=further, arguments=arguments, settings=sampling)

    programs = {"rollout": begin, "rollout_further": further_program(size.rows)}
    if half < size.rows:
        arguments = (params, state_shapes(size.rows), sharded((size.rows,), jnp.int32), shape((half,), jnp.int32))
        programs["rollout_taken"] = Program(function=take, arguments=arguments)
        programs["rollout_half"] = further_program(half)
    return programs


class Rollout(NamedTuple):
    """Completions of a step: batch `[accum batch …]`, fields of the metric row, rows of `rollouts.jsonl`, failures."""

    batch: HostBatch
    figures: dict[str, float]
    rows: list[dict[str, Any]]
    failures: list[Problem]
    """Problems of completions whose reward could not be computed."""


def assign_advantages(rows: Sequence[dict[str, Any]], settings: ObjectiveConfig) -> None:
    """Set `advantage` and `is_used` of the rows of a step, whose groups are consecutive."""
    groups = [rows[first : first + settings.group_size] for first in range(0, len(rows), settings.group_size)]
    rewarded = [[row for row in group if row["reward"] is not None] for group in groups]
    found = advantages([[row["reward"] for row in group] for group in rewarded], settings.scale_rewards)
    for group, values in zip(rewarded, found, strict=True):
        for row, advantage in zip(group, values, strict=True):
            is_masked = settings.mask_truncated and row["finish_reason"] == "length"
            row["advantage"], row["is_used"] = advantage, any(values) and not is_masked


@dataclass(frozen=True, kw_only=True)
class Rollouts:
    """Samples and rewards the completions of steps."""

    objective: GroupPolicy
    task: Task
    data: Data
    programs: GroupPrograms
    rewards: tuple[Reward, ...]
    assign_advantages: Callable[[Sequence[dict[str, Any]], ObjectiveConfig], None] = assign_advantages
    """Sets `advantage` and `is_used` of a step's rows, as `assign_advantages` does."""

    def draw(self, step: int, prompts: HostBatch, state: TrainState, frozen: Params) -> Rollout:
        """Sample and reward the completions of the step after `step` steps, from the state before it.

        `prompts` has the arrays of the objective's collate function, one microbatch. Raises `ProblemError` if the
        rewards of too many completions failed.
        """
        began = time.perf_counter()
        tokens, lengths, rows = (prompts[name][0] for name in ("prompts", "lengths", "rows"))
        key = jax.random.fold_in(jax.random.fold_in(jax.random.key(self.task.config.seed), ROLLOUT_STREAM), step)
        keys = row_keys(key, distinct_numbers(rows.tolist(), len(self.data.rows)), self.objective.sequences_each)
        drawn = self.programs.draw(combine(state.trained, drop_reference_params(frozen)), tokens, lengths, keys=keys)
        written, failures = self._reward(step + 1, rows.tolist(), drawn)
        self.assign_advantages(written, self.objective.settings)
        batch = self._batch(tokens, lengths, drawn, written)
        figures = rollout_figures(written, drawn) | {"rollout_seconds": time.perf_counter() - began}
        return Rollout(batch, figures, written, failures)

    def _reward(
        self, step: int, rows: Sequence[int], drawn: Sequence[DrawnCompletion]
    ) -> tuple[list[dict[str, Any]], list[Problem]]:
        """Return each completion as a row of `rollouts.jsonl`, and the problems of failed rewards."""
        size, written, failures = self.objective.sequences_each, list[dict[str, Any]](), list[Problem]()
        for number, each in enumerate(drawn):
            place, reason = rows[number // size], each.written.finish_reason
            row, text = self.data.rows[place], completion_text(each.written, self.data.tokenizer)
            attempt = Attempt(prompt=row_prompt(row), text=text, row=row, finished=reason == "stop")
            written.append(
                {
                    "step": step,
                    "group": number // size,
                    "sample": number % size,
                    "row": place,
                    "prompt": attempt.prompt,
                    "completion": text,
                    "token_ids": list(each.written.tokens),
                    "finish_reason": reason,
                    "rewards": dict.fromkeys(reward.name for reward in self.rewards),
                    "reward": None,
                    "advantage": 0.0,
                    "is_used": False,
                    "sampled_logprob_sum": float(np.sum(each.log_probs, dtype=np.float64)),
                }
            )
            failed = list[Problem]()
            with collect_problems(failed):
                scored = score_parts(self.rewards, attempt)
                written[-1] |= {"reward": total_reward(self.rewards, scored), "rewards": dict(scored)}
            failures += failed[:1]
        if len(failures) > MAX_FAILED * len(written):
            what = f"The rewards of {len(failures)} of {len(written)} completions of step {step} could not be computed."
            problem = problem_of("TP926", file=self.task.config.name, pointer="/objective/rewards", what=what)
            raise ProblemError([problem, *failures[:3]])
        return written, failures

    def _batch(
        self,
        prompts: np.ndarray,
        lengths: np.ndarray,
        drawn: Sequence[DrawnCompletion],
        written: Sequence[dict[str, Any]],
    ) -> HostBatch:
        """Return the arrays of the train step: each prompt followed by its completion, padded on the right."""
        shapes = self.objective.batch_shapes(len(drawn))
        arrays = {name: np.zeros(each.shape, each.dtype) for name, each in shapes.items()}
        arrays["advantages"][:] = [row["advantage"] for row in written]
        for number, (each, row) in enumerate(zip(drawn, written, strict=True)):
            group = number // self.objective.sequences_each
            begin = int(lengths[group])
            new = slice(begin, begin + len(each.written.tokens))
            arrays["tokens"][number, :begin] = prompts[group, prompts.shape[1] - begin :]
            arrays["tokens"][number, new] = each.written.tokens
            arrays["old_log_probs"][number, new] = each.log_probs
            arrays["loss_mask"][number, new] = row["is_used"]
        count = self.task.config.batch.accumulation_steps
        return {name: array.reshape(count, -1, *array.shape[1:]) for name, array in arrays.items()}


def build_rollouts(task: Task, data: Data) -> Rollouts | None:
    """Return the rollouts of a run, or None if its objective samples no completions.

    Raises `ProblemError` with exit code 2 if its rewards are not valid, or rows lack fields that they need.
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
        data=data,
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


def distinct_numbers(rows: Sequence[int], count: int) -> list[int]:
    """Return a distinct number for each row of a step, so that a repeated row gets other samples.

    `distinct_numbers([4, 1, 4], 10)` is `[4, 1, 14]`.
    """
    seen = Counter[int]()
    numbers = []
    for row in rows:
        numbers.append(row + count * seen[row])
        seen[row] += 1
    return numbers


def completion_text(written: Completion, tokenizer: Tokenizer) -> str:
    """Decode a completion without its stop token."""
    return str(tokenizer.decode(list(written.tokens[:-1] if written.finish_reason == "stop" else written.tokens)))


def rollout_figures(written: Sequence[dict[str, Any]], drawn: Sequence[DrawnCompletion]) -> dict[str, float]:
    """Return the fields of a step's row about its completions."""
    rewards = [row["reward"] for row in written if row["reward"] is not None]
    groups = [{row["reward"] for row in group} for _, group in groupby(written, key=itemgetter("group"))]
    lengths = [len(each.written.tokens) for each in drawn]
    return {
        "reward_mean": fmean(rewards) if rewards else 0.0,
        "reward_std": pstdev(rewards) if rewards else 0.0,
        "flat_groups": fmean(len(each) == 1 for each in groups),
        "completion_tokens_mean": fmean(lengths),
        "completion_tokens_max": float(max(lengths)),
        "truncated_share": fmean(row["finish_reason"] == "length" for row in written),
        "distinct_completions": float(len({(row["group"], tuple(row["token_ids"])) for row in written})),
        "entropy": float(np.mean(np.concatenate([each.entropies for each in drawn]), dtype=np.float64)),
    }


class StepCompletions:
    """Provides the batches of a loop that learns from its own completions, and records a sample."""

    def __init__(self, rollouts: Rollouts, recorder: Recorder) -> None:
        self._rollouts, self._recorder = rollouts, recorder
        self._updates = rollouts.objective.updates_per_rollout
        self._logged = frozenset(logged_rollout_steps(rollouts.task.config.limits.steps, self._updates))
        self._flat = 0
        self._figures: dict[str, float] = {}

    def is_due(self, step: int) -> bool:
        """Return whether the update after `step` steps needs new completions."""
        return step % self._updates == 0

    def batch(self, prompts: HostBatch, step: int, state: TrainState, frozen: Params) -> HostBatch:
        """Return the batch of the update after `step` steps: completions of prompts."""
        rollout = self._rollouts.draw(step, prompts, state, frozen)
        self._figures = rollout.figures
        if step + 1 in self._logged:
            self._recorder.append(layout.ROLLOUTS, rollout.rows)
        for problem in rollout.failures:
            message = f"{problem.code}: {render_sentence(problem)}"
            self._recorder.log("warning", "reward_failed", message, code=problem.code, step=step + 1)
        self._flat = self._flat + 1 if rollout.figures["flat_groups"] > FLAT_FRACTION else 0
        if self._flat == FLAT_ROLLOUTS:
            self._recorder.log("warning", "flat_rewards", FLAT, step=step + 1)
        return rollout.batch

    def row(self, done: int, named: dict[str, float | None], *, update_seconds: float) -> dict[str, float | None]:
        """Return the fields of a step's row about its completions and its update; `done` counts this step."""
        fields: dict[str, float | None] = {**named, **self._figures, "update_seconds": update_seconds}
        if not self.is_due(done - 1):
            fields["rollout_seconds"] = 0.0
            del fields["sampler_gap"]  # the parameters have changed since sampling
        return fields

    @property
    def stops(self) -> str | None:
        """Why the run ends before the next rollout, or None."""
        return FLAT if self._rollouts.objective.settings.stop_when_flat and self._flat >= FLAT_ROLLOUTS else None
