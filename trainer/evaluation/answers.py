"""Answer evaluation items: render prompts, generate, read the answers, write one prediction row per item.

Scoring is `evidence.scores`, so that a checker computes the same verdicts. Decoding is `trainer.generate`.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
from jaxtyping import Array, Key

from evidence.hashes import sha256_json
from evidence.scores.reading import Scoring, accepted_answers
from evidence.scores.recompute import MORE_SAMPLES, majority_fields
from trainer.config.tree import EvaluationConfig
from trainer.data.answers import encode_items
from trainer.data.conversations import PromptForm, Tokenizer, end_token_id
from trainer.data.rows import RowFile
from trainer.generate.decode import Completion, generate, row_keys
from trainer.generate.sampling import DrawKeys, evaluation_sampling
from trainer.loop.task import Task
from trainer.model.stacks import Params
from trainer.objectives.data import Data

EVALUATION_STREAM = 0x65766C
"""Folded into the run's seed, so that evaluation samples are independent of every other use of the seed."""


@dataclass(frozen=True, kw_only=True)
class Sampler:
    """A model with the prompt form, the settings and the scoring of its evaluation."""

    task: Task
    settings: EvaluationConfig
    form: PromptForm
    scoring: Scoring
    tokenizer: Tokenizer

    @classmethod
    def for_task(cls, task: Task, data: Data) -> Sampler:
        """Build the sampler of a run whose data is loaded."""
        settings = task.config.evaluation
        return cls(task=task, settings=settings, form=data.form, scoring=data.scoring, tokenizer=data.tokenizer)

    @property
    def max_prompt_tokens(self) -> int:
        """Length of the longest prompt that leaves room for `max_new_tokens`."""
        return self.task.model.source.spec.max_positions - self.settings.max_new_tokens

    @cached_property
    def stop_token_id(self) -> int:
        """Token that ends an answer."""
        return end_token_id(self.tokenizer, self.form)

    def encode_prompts(self, items: RowFile) -> list[list[int]]:
        """Return the token ids of each item's prompt; see `encode_items`."""
        return encode_items(items, self.form, self.tokenizer)

    def has_room(self, prompt: Sequence[int]) -> bool:
        """Return whether a prompt has at least one token and leaves room for an answer."""
        return 0 < len(prompt) <= self.max_prompt_tokens

    def sample_keys(self, ids: Sequence[str]) -> Key[Array, "items samples"]:
        """Return one key per item and sample, derived from the run's seed, the item's id and the sample number.

        An item therefore gets the same samples whichever other items are answered with it.
        """
        digests = [hashlib.sha256(each.encode()).digest() for each in ids]
        numbers = [(int.from_bytes(digest[:4]), int.from_bytes(digest[4:8])) for digest in digests]
        key = jax.random.fold_in(jax.random.key(self.task.config.seed), EVALUATION_STREAM)
        keys: Key[Array, "items samples"] = row_keys(key, numbers, self.settings.samples)
        return keys.reshape(len(numbers), self.settings.samples)

    def answer(
        self, params: Params, prompts: Mapping[str, Sequence[int]], like: Sequence[Sequence[int]] = ()
    ) -> Iterator[tuple[Completion, ...]]:
        """Yield the completions of each prompt: one greedy answer, or `settings.samples` sampled ones.

        Args:
            params: Parameters by name.
            prompts: Token ids by item id.
            like: Prompts of the whole set if `prompts` is a subset; see `generate`.
        """
        sampling = evaluation_sampling(self.settings)
        completions = generate(
            self.task.model.graphdef,
            params,
            list(prompts.values()),
            max_new_tokens=self.settings.max_new_tokens,
            stop_token_id=self.stop_token_id,
            batch_size=self.settings.batch_size,
            like=like,
            drawing=None if sampling is None else DrawKeys(keys=self.sample_keys(list(prompts)), sampling=sampling),
            options=self.task.compiler_options,
        )
        cut = (
            replace(each, tokens=each.tokens[:count], finish_reason="stop")
            if (count := self.tokens_to_stop(each.tokens)) is not None
            else each
            for each in completions
        )
        return zip(*[cut] * self.settings.samples, strict=True)

    def tokens_to_stop(self, tokens: Sequence[int]) -> int | None:
        """Return the number of tokens up to the end of the stop text, or None if it does not occur."""
        stop, counts = self.settings.stop, range(len(tokens) + 1)
        if stop is None or stop not in self.tokenizer.decode(list(tokens)):
            return None
        return bisect_left(counts, 1, key=lambda count: stop in self.tokenizer.decode([*tokens[:count]]))

    def decode_answer(self, tokens: Sequence[int]) -> str:
        """Decode an answer without its end token, up to and including the stop text."""
        ended = bool(tokens) and tokens[-1] == self.stop_token_id
        text, stop = str(self.tokenizer.decode(list(tokens[:-1] if ended else tokens))), self.settings.stop
        return text if stop is None or stop not in text else text[: text.index(stop) + len(stop)]

    def document(self) -> dict[str, Any]:
        """Return the `generation` group of `eval_summary.json`."""
        settings = self.settings
        sampled = {key: getattr(settings, key) for key in ("samples", "temperature", "top_k", "top_p")}
        generation = {
            "method": "greedy" if settings.samples == 1 else "sampled",
            **(sampled | {"seed": self.task.config.seed} if settings.samples > 1 else {}),
            **({} if settings.stop is None else {"stop": settings.stop}),
            "max_new_tokens": settings.max_new_tokens,
            "stop_token_id": self.stop_token_id,
            "prompt_template": self.form.render("{prompt}", self.tokenizer),
        }
        return generation | {"sha256": sha256_json(generation)}


def answer_items(
    sampler: Sampler,
    params: Params,
    items: Sequence[dict[str, Any]],
    prompts: Sequence[Sequence[int]],
    *,
    like: Sequence[Sequence[int]] = (),
) -> Iterator[dict[str, Any]]:
    """Yield the prediction row of each item, in order; an item without room for an answer gets an error row.

    Args:
        sampler: Model, prompt form and scoring.
        params: Parameters by name.
        items: Evaluation items, with unique ids.
        prompts: Token ids of each item.
        like: Prompts of the whole set if `items` is a subset; see `generate`.
    """
    with_room = {item["id"]: prompt for item, prompt in zip(items, prompts, strict=True) if sampler.has_room(prompt)}
    completions = sampler.answer(params, with_room, like=[prompt for prompt in like if sampler.has_room(prompt)])
    for item, prompt in zip(items, prompts, strict=True):
        has_room = item["id"] in with_room
        yield (
            prediction_row(item, next(completions), sampler) if has_room else unanswered_row(item, len(prompt), sampler)
        )


def prediction_row(item: dict[str, Any], completions: Sequence[Completion], sampler: Sampler) -> dict[str, Any]:
    """Return the row of an answered item.

    With several samples, the row's own fields describe the first one: a single draw, as a user gets it, so its score
    is an unbiased pass@1. The majority vote has separate fields.
    """
    accepted, samples = accepted_answers(item), []
    for completion in completions:
        text, reason = sampler.decode_answer(completion.tokens), completion.finish_reason
        sample = {
            "output_text": text,
            **sampler.scoring.verdict(text, reason, accepted, stop=sampler.settings.stop),
            "output_tokens": len(completion.tokens),
            "finish_reason": reason,
            "output_token_ids": " ".join(map(str, completion.tokens)),
        }
        samples.append(sample)
    row = item_fields(item) | samples[0] | {"error": None}
    if len(samples) == 1:
        return row
    answers = [each["extracted_answer"] for each in samples]
    return row | {MORE_SAMPLES: samples[1:]} | majority_fields(answers, sampler.scoring, accepted)


def unanswered_row(item: dict[str, Any], prompt_tokens: int, sampler: Sampler) -> dict[str, Any]:
    """Return the row of an item whose prompt is empty or too long to leave room for an answer."""
    why = f"the prompt has {prompt_tokens} tokens; at most {sampler.max_prompt_tokens} leave room for an output"
    if prompt_tokens == 0:
        why = "the tokenizer finds no token in the prompt, so there is nothing to continue"
    return item_fields(item) | {
        "output_text": "",
        "extracted_answer": None,
        "correct": False,
        "format_ok": False,
        "lenient_correct": False,
        "output_tokens": 0,
        "finish_reason": "error",
        "error": why,
    }


def item_fields(item: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that a prediction row repeats of its item; items of one group are not independent."""
    expected, *others = accepted_answers(item)
    return (
        ({"group": item["group"]} if "group" in item else {})
        | ({"also_expected": others} if others else {})
        | {"id": item["id"], "prompt": item["prompt"], "expected": expected}
        | {key: item.get(key) for key in ("section", "category", "difficulty")}
    )


def select_rows(file: RowFile, places: Sequence[int]) -> RowFile:
    """Return a file with only the rows at some places, in that order."""
    return replace(
        file, rows=tuple(file.rows[place] for place in places), lines=tuple(file.lines[place] for place in places)
    )
