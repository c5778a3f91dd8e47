"""Quality over time: some items of the evaluation set answered during training, and the loss of their right answers.

Items follow from the run's seed, answers are greedy and go through the program of the evaluation at the end, so a run
that is continued or repeated has the same rows.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from evidence.scores.reading import accepted_answers
from evidence.scores.recompute import draw_ids
from trainer.data.rows import RowFile
from trainer.evaluation.evaluate import prediction_row, unanswered_row
from trainer.evaluation.one_pass import follow_texts
from trainer.evaluation.sampler import Sampler, sampler_of
from trainer.loop.held_out import HeldOutPoint
from trainer.loop.step import TrainState
from trainer.loop.task import Task, without_reference
from trainer.model.model import combine
from trainer.model.stacks import Params, unstack_on_devices
from trainer.objectives.data import Data

KEPT = (
    *("id", "prompt", "expected", "also_expected", "output_text", "extracted_answer", "correct"),
    *("output_tokens", "finish_reason", "error"),
)
"""What a row of `answers_over_steps.jsonl` has of a prediction."""


@dataclass(frozen=True, kw_only=True)
class HeldOut:
    """The items that are asked during training, and how."""

    sampler: Sampler
    items: RowFile
    """Those drawn."""
    prompts: Mapping[str, list[int]]
    """Token ids of each, by its id."""
    like: Sequence[Sequence[int]]
    """The prompts of the whole set that can be answered: their program answers."""
    every_steps: int

    def is_due(self, done: int) -> bool:
        """Return whether it measures after this many steps."""
        return done % self.every_steps == 0

    def measure(self, done: int, state: TrainState, frozen: Params) -> HeldOutPoint:
        """Return score, loss and answers of the model after this many steps."""
        began = time.perf_counter()
        params = unstack_on_devices(combine(state.trained, without_reference(frozen)))
        rows = tuple(self._rows(done, params))
        costs = [cost for _, cost in answer_costs(self.sampler, params, self.items)]
        mean = fmean(costs) if costs else math.nan
        loss = {"held_out_loss": mean if math.isfinite(mean) else None} if costs else {}
        score = {"held_out_score": sum(row["correct"] for row in rows) / len(rows)}
        return HeldOutPoint({**score, **loss, "held_out_seconds": time.perf_counter() - began}, rows)

    def _rows(self, done: int, params: Params) -> Iterator[dict[str, Any]]:
        sampler = self.sampler
        roomy = {each: prompt for each, prompt in self.prompts.items() if sampler.has_room(prompt)}
        completions = sampler.answer(params, roomy, like=self.like)
        for item in self.items.rows:
            if item["id"] in roomy:
                row = prediction_row(item, next(completions), sampler)
            else:
                tokens, most = len(self.prompts[item["id"]]), sampler.max_prompt_tokens
                row = unanswered_row(item, prompt_tokens=tokens, max_prompt_tokens=most)
            yield {"step": done} | {key: row[key] for key in KEPT if key in row}


def held_out_of(task: Task, data: Data) -> HeldOut | None:
    """Return what a run measures while it trains, or None if it measures nothing."""
    of = task.config.evaluation
    if of.every_steps == 0 or data.items is None:
        return None
    file, prompts = data.items.file, data.items.prompts
    chosen = set(draw_ids([item["id"] for item in file.rows], of.during_items, task.config.seed))
    drawn = [place for place, item in enumerate(file.rows) if item["id"] in chosen]
    items = replace(
        file, rows=tuple(file.rows[place] for place in drawn), lines=tuple(file.lines[place] for place in drawn)
    )
    sampler = sampler_of(task, data, data.scoring)
    greedy = replace(sampler, settings=replace(of, samples=1))
    return HeldOut(
        sampler=greedy,
        items=items,
        prompts={file.rows[place]["id"]: prompts[place] for place in drawn},
        like=[prompt for prompt in prompts if greedy.has_room(prompt)],
        every_steps=of.every_steps,
    )


def answer_costs(sampler: Sampler, params: Params, items: RowFile) -> list[tuple[Mapping[str, Any], float]]:
    """Return each item that fits into the model with the mean loss of its answer's tokens, in nats."""
    form = "<answer>{}</answer>" if sampler.scoring.answer == "tags" else "{}"
    texts, asked = [], []
    for item, prompt in zip(items.rows, sampler.prompts_of(items), strict=True):
        answer = sampler.tokenizer.encode(form.format(accepted_answers(item)[0]), add_special_tokens=False)
        if prompt and answer and len(prompt) + len(answer) <= sampler.max_positions:
            asked.append(item)
            texts.append((prompt, answer))
    passes = follow_texts(
        sampler.graphdef, params, texts, batch_size=sampler.settings.batch_size, options=sampler.options
    )
    return [(item, float(passed.losses.mean())) for item, passed in zip(asked, passes, strict=True)]
