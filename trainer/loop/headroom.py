"""What the model before training has to gain from its rewards, measured as a step draws, before a step is spent."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax

from evidence.rewards import Attempt, Reward, pass_rates
from evidence.scores.recompute import draw_ids, share_with_interval
from schemas.formats import quantity
from schemas.problems import Problem, problem_of
from schemas.render import render_sentence
from trainer.data.conversations import row_prompt
from trainer.data.encode import EncodedRow
from trainer.generate.decode import row_keys
from trainer.loop.rollouts import Rollouts, completion_text, reward_attempt, rollout_size
from trainer.loop.step import Params, TrainState
from trainer.loop.task import drop_reference_params
from trainer.model.model import combine
from trainer.recorder.memory import MemoryWatch
from trainer.recorder.recorder import Recorder

HEADROOM = 0x68656164
"""Folded into the run's key, so that no draw of a step is equal to these."""
NEAR_ZERO, NEAR_ONE = 0.05, 0.95
"""pass@k below which there is nothing to reinforce, and pass@1 above which there is nothing to gain."""


def decisive(rewards: Sequence[Reward]) -> Reward:
    """Return the reward that decides whether a completion is right: that of the largest weight times range."""
    return max(rewards, key=lambda reward: abs(reward.weight) * (reward.high - reward.low))


def is_right(rewards: Sequence[Reward], parts: Mapping[str, float | None]) -> bool:
    """Return whether the decisive reward of a completion is the best possible."""
    reward = decisive(rewards)
    return parts[reward.name] == (reward.high if reward.weight > 0 else reward.low)


def headroom_problems(found: Mapping[str, Any], *, file: str, of: str = "") -> Iterator[Problem]:
    """Yield a warning if the model has nothing to learn from its rewards.

    Args:
        found: The group `headroom` of a manifest's result.
        file: Named in the problem.
        of: Where it was measured, as the end of a sentence.
    """
    what = f"{in_words(found)}{of}."
    if found["pass_k"] < NEAR_ZERO and not found["partial"]:
        yield problem_of("TP927", file=file, pointer="/objective/rewards", what=what)
    if found["pass_1"] > NEAR_ONE:
        yield problem_of("TP928", file=file, pointer="/objective/rewards", what=what)


def in_words(found: Mapping[str, Any]) -> str:
    """Describe a measured headroom in one sentence without its full stop."""
    right, samples = found["right"], found["samples"]
    interval = share_with_interval([count / samples for count in right], range(len(right)), samples)["interval"]
    return (
        f"Before the first step pass@1 is {found['pass_1']:.3f} (95 % interval {interval['low']:.3f} to "
        f"{interval['high']:.3f}) and pass@{samples} {found['pass_k']:.3f}, of {quantity(len(right), 'prompt')} with "
        f"{samples} completions each; {found['flat_groups']:.0%} of these groups have no spread"
    )


def record_headroom(
    rollouts: Rollouts | None,
    examples: Sequence[EncodedRow],
    state: TrainState,
    frozen: Params,
    recorder: Recorder,
    memory: MemoryWatch,
) -> None:
    """Measure what there is to gain, write it down, and state in words where that is nothing.

    A run that continues another does not measure: the one that began did.
    """
    if rollouts is None or not rollouts.objective.settings.headroom_items or recorder.manifest["parent"]:
        return
    with memory.during("rollout"):
        found = measure_headroom(rollouts, examples, state, frozen)
    recorder.update("result", headroom=found)
    recorder.log("info", "headroom", in_words(found), **found)
    for problem in headroom_problems(found, file=rollouts.task.config.name):
        recorder.log("warning", "no_headroom", f"{problem.code}: {render_sentence(problem)}", code=problem.code)


def measure_headroom(
    rollouts: Rollouts, examples: Sequence[EncodedRow], state: TrainState, frozen: Params
) -> dict[str, Any]:
    """Return the group `headroom` of a manifest's result.

    Prompts are drawn from the seed and go through the programs of a roll-out, in roll-outs of its size.

    Args:
        rollouts: draws and rewards.
        examples: the prompt of each row.
        state: before the first step; it is only read.
        frozen: the parameters that do not learn.
    """
    began = time.perf_counter()
    config, size = rollouts.task.config, rollout_size(rollouts.task)
    assert size is not None, "completions are drawn"
    numbers = [str(number) for number in range(len(examples))]
    chosen = [int(number) for number in draw_ids(numbers, config.objective.headroom_items, config.seed)]
    key = jax.random.fold_in(jax.random.key(config.seed), HEADROOM)
    params = combine(state.trained, drop_reference_params(frozen))
    groups: list[list[tuple[dict[str, float | None], float | None]]] = []
    for first in range(0, len(chosen), size.prompts):
        asked = chosen[first : first + size.prompts]
        filled = [asked[place % len(asked)] for place in range(size.prompts)]
        prompts = rollouts.objective.collate([[examples[each]] for each in filled])
        keys = row_keys(key, filled, size.group_size)
        drawn = rollouts.programs.draw(params, prompts["prompts"], prompts["lengths"], keys=keys)
        for place, each in enumerate(asked):
            row = rollouts.rows[examples[each].row]
            group = []
            for one in drawn[place * size.group_size : (place + 1) * size.group_size]:
                text, ended = completion_text(one.written, rollouts.tokenizer), one.written.finish_reason == "stop"
                attempt = Attempt(prompt=row_prompt(row), text=text, row=row, finished=ended)
                group.append(reward_attempt(rollouts.rewards, attempt)[:2])
            groups.append(group)
    main = decisive(rollouts.rewards)
    ends = (main.low, main.high, None)
    right = [sum(is_right(rollouts.rewards, parts) for parts, _ in group) for group in groups]
    return {
        "samples": size.group_size,
        "right": right,
        **pass_rates(right, size.group_size),
        "flat_groups": sum(len({total for _, total in group}) == 1 for group in groups) / len(groups),
        "partial": any(parts[main.name] not in ends for group in groups for parts, _ in group),
        "seconds": time.perf_counter() - began,
    }
