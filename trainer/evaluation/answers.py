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
from flax import nnx
from jaxtyping import Array, Key

from evidence.hashes import sha256_json
from evidence.scores.reading import Scoring, accepted_answers
from evidence.scores.recompute import MORE_SAMPLES, majority_fields
from trainer.config.tree import EvaluationConfig
from trainer.data.answers import encode_items
from trainer.data.conversations import PromptForm, Tokenizer, end_token_id
from trainer.data.rows import RowFile
from trainer.generate.decode import Completion, generate, row_keys
from trainer.generate.sampling import DrawKeys, Sampling, evaluation_sampling
from trainer.loop.task import Task
from trainer.model.decoder import Decoder
from trainer.model.stacks import Params
from trainer.recorder.environment import CompilerOptions

EVALUATION_STREAM = 0x65766C
"""Folded into the run's seed, so that evaluation samples are independent of every other use of the seed."""


@dataclass(frozen=True, kw_only=True)
class Sampler:
    """Tokenizer, prompt form, structure and settings with which a model answers prompts."""

    settings: EvaluationConfig
    form: PromptForm
    """How prompts are rendered."""
    scoring: Scoring
    """How answers are read and compared."""
    tokenizer: Tokenizer
    graphdef: nnx.GraphDef[Decoder]
    max_positions: int
    seed: int
    """Seed of the run; used when several answers are sampled per item."""
    compute_dtype: str
    """Dtype of the matrix products."""
    options: CompilerOptions = ()
    """Compiler options."""

    @classmethod
    def for_task(cls, task: Task, *, form: PromptForm, scoring: Scoring, tokenizer: Tokenizer) -> Sampler:
        """Build the sampler of a task's model with the task's evaluation settings."""
        return cls(
            settings=task.config.evaluation,
            form=form,
            scoring=scoring,
            tokenizer=tokenizer,
            graphdef=task.model.graphdef,
            max_positions=task.model.source.spec.max_positions,
            seed=task.config.seed,
            compute_dtype=task.config.precision.compute,
            options=task.compiler_options,
        )

    @property
    def max_prompt_tokens(self) -> int:
        """Length of the longest prompt that leaves room for `max_new_tokens`."""
        return self.max_positions - self.settings.max_new_tokens

    @cached_property
    def stop_token_id(self) -> int:
        """Token that ends an answer."""
        return end_token_id(self.tokenizer, self.form)

    @cached_property
    def prompt_template(self) -> str:
        """Rendered prompt with the placeholder `{prompt}`."""
        return self.form.render("{prompt}", self.tokenizer)

    @property
    def sampling(self) -> Sampling | None:
        """Sampling parameters, or None for greedy decoding."""
        return evaluation_sampling(self.settings)

    def encode_prompts(self, items: RowFile) -> list[list[int]]:
        """Return the token ids of each item's prompt.

        Raises:
            ProblemError: exit code 2; the chat template rejects an item.
        """
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
        key = jax.random.fold_in(jax.random.key(self.seed), EVALUATION_STREAM)
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
        sampling = self.sampling
        completions = generate(
            self.graphdef,
            params,
            list(prompts.values()),
            max_new_tokens=self.settings.max_new_tokens,
            stop_token_id=self.stop_token_id,
            batch_size=self.settings.batch_size,
            like=like,
            drawing=None if sampling is None else DrawKeys(keys=self.sample_keys(list(prompts)), sampling=sampling),
            options=self.options,
        )
        return zip(*[map(self.cut_at_stop, completions)] * self.settings.samples, strict=True)

    def cut_at_stop(self, completion: Completion) -> Completion:
        """Cut a completion after the token that completes the stop text."""
        count = self.tokens_to_stop(completion.tokens)
        if count is None:
            return completion
        return replace(completion, tokens=completion.tokens[:count], finish_reason="stop")

    def tokens_to_stop(self, tokens: Sequence[int]) -> int | None:
        """Return the number of tokens up to the end of the stop text, or None if it does not occur."""
        stop = self.settings.stop
        if stop is None or stop not in self.tokenizer.decode(list(tokens)):
            return None
        return bisect_left(
            range(len(tokens) + 1), 1, key=lambda count: stop in self.tokenizer.decode([*tokens[:count]])
        )

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
            **(sampled | {"seed": self.seed} if settings.samples > 1 else {}),
            **({} if settings.stop is None else {"stop": settings.stop}),
            "max_new_tokens": settings.max_new_tokens,
            "stop_token_id": self.stop_token_id,
            "prompt_template": self.prompt_template,
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
        sampler: How the model is prompted and read.
        params: Parameters by name.
        items: Evaluation items, with unique ids.
        prompts: Token ids of each item.
        like: Prompts of the whole set if `items` is a subset; see `generate`.
    """
    with_room = {item["id"]: prompt for item, prompt in zip(items, prompts, strict=True) if sampler.has_room(prompt)}
    completions = sampler.answer(params, with_room, like=[prompt for prompt in like if sampler.has_room(prompt)])
    for item, prompt in zip(items, prompts, strict=True):
        if item["id"] in with_room:
            yield prediction_row(item, next(completions), sampler)
        else:
            yield unanswered_row(item, len(prompt), sampler)


def prediction_row(item: dict[str, Any], completions: Sequence[Completion], sampler: Sampler) -> dict[str, Any]:
    """Return the row of an answered item.

    With several samples, the row's own fields describe the first one: a single draw, as a user gets it, so its score
    is an unbiased pass@1. The majority vote has separate fields.
    """
    first, *others = (sample_fields(item, completion, sampler) for completion in completions)
    row = item_fields(item) | first | {"error": None}
    if not others:
        return row
    answers = [each["extracted_answer"] for each in (first, *others)]
    return row | {MORE_SAMPLES: others} | majority_fields(answers, sampler.scoring, accepted_answers(item))


def sample_fields(item: dict[str, Any], completion: Completion, sampler: Sampler) -> dict[str, Any]:
    """Return the fields of one answer: text, verdict, length and tokens."""
    text = sampler.decode_answer(completion.tokens)
    return {
        "output_text": text,
        **sampler.scoring.verdict(text, completion.finish_reason, accepted_answers(item), stop=sampler.settings.stop),
        "output_tokens": len(completion.tokens),
        "finish_reason": completion.finish_reason,
        "output_token_ids": " ".join(map(str, completion.tokens)),
    }


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
