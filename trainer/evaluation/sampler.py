"""A model's tokenizer, form of prompts and settings: all that its answers depend on besides its parameters."""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import jax
from flax import nnx
from jaxtyping import Array, Key

from evidence.scores.reading import Scoring
from trainer.config.tree import EvaluationConfig
from trainer.data.conversations import Tokenizer, end_token_id
from trainer.data.answers import encode_items
from trainer.data.conversations import PromptForm
from trainer.data.rows import RowFile
from trainer.generate.decode import Completion, generate
from trainer.generate.groups import row_keys
from trainer.generate.sampling import DrawKeys, Sampling, sampling_of
from trainer.loop.task import Task
from trainer.model.decoder import Decoder
from trainer.model.params import Params
from trainer.objectives.data import Data
from trainer.recorder.processor import CompilerOptions

OF_EVALUATION = 0x65766C
"""Folded into the key of a run's seed: draws of the evaluation are no other draws of the run."""


@dataclass(frozen=True, kw_only=True)
class Sampler:
    """What a model needs to answer prompts, besides its parameters."""

    settings: EvaluationConfig
    form: PromptForm
    """How prompts are put to the model."""
    scoring: Scoring
    """How its answers are read and compared."""
    tokenizer: Tokenizer
    graphdef: nnx.GraphDef[Decoder]
    max_positions: int
    seed: int
    """Of the run; decides what is drawn where an item has several answers."""
    options: CompilerOptions = ()
    """Options of the compiler."""

    @property
    def max_prompt_tokens(self) -> int:
        """Longest prompt that leaves room for an output."""
        return self.max_positions - self.settings.max_new_tokens

    @property
    def stop_token_id(self) -> int:
        """The token that ends an output."""
        return end_token_id(self.tokenizer, self.form)

    @property
    def prompt_template(self) -> str:
        """What the model is given; {prompt} stands for an item's prompt."""
        return self.form.render("{prompt}", self.tokenizer)

    def prompts_of(self, items: RowFile) -> list[list[int]]:
        """Return each item's prompt in token ids.

        Raises:
            ProblemError: exit code 2; the chat template refuses items.
        """
        return encode_items(items, self.form, self.tokenizer)

    def has_room(self, prompt: Sequence[int]) -> bool:
        """Return whether a prompt can be answered: it has a token, and leaves room for an output."""
        return 0 < len(prompt) <= self.max_prompt_tokens

    @property
    def sampling(self) -> Sampling | None:
        """How tokens are drawn. None: each is the likeliest."""
        return sampling_of(self.settings)

    def keys_of(self, ids: Sequence[str]) -> Key[Array, "items samples"]:
        """Return the key of each sample of items: it follows from the run's seed, the item's id and the number alone.

        So an item has the same samples in whichever part of a set it is put to the model.
        """
        numbers = [int.from_bytes(hashlib.sha256(each.encode()).digest()[:4]) for each in ids]
        key = jax.random.fold_in(jax.random.key(self.seed), OF_EVALUATION)
        keys: Key[Array, "items samples"] = row_keys(key, numbers, self.settings.samples)
        return keys.reshape(len(numbers), self.settings.samples)

    def answer(
        self, params: Params, prompts: Mapping[str, Sequence[int]], like: Sequence[Sequence[int]] = ()
    ) -> Iterator[tuple[Completion, ...]]:
        """Yield the completions of each prompt, with their last hidden states: one greedy, or several that are drawn.

        Args:
            params: by name.
            prompts: token ids, by the item's id.
            like: prompts that these are a part of; see `generate`.
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
            keep_states=True,
            drawing=None if sampling is None else DrawKeys(keys=self.keys_of(list(prompts)), sampling=sampling),
            options=self.options,
        )
        return zip(*[map(self.cut, completions)] * self.settings.samples, strict=True)

    def cut(self, completion: Completion) -> Completion:
        """Return a completion up to the token with which its text holds the stop text."""
        count = self.tokens_to_stop(completion.tokens)
        if count is None:
            return completion
        states = None if completion.states is None else completion.states[:count]
        return replace(completion, tokens=completion.tokens[:count], finish_reason="stop", states=states)

    def tokens_to_stop(self, tokens: Sequence[int]) -> int | None:
        """Return after how many tokens the text holds the stop text, or None if it is missing."""
        stop = self.settings.stop
        if stop is None or stop not in self.tokenizer.decode(list(tokens)):
            return None

        def holds(count: int) -> bool:
            return stop in self.tokenizer.decode([*tokens[:count]])

        return bisect_left(range(len(tokens) + 1), 1, key=holds)

    def text_of(self, tokens: Sequence[int]) -> str:
        """Return the text of an answer: without the token that ended it, up to and with the stop text."""
        ended = bool(tokens) and tokens[-1] == self.stop_token_id
        text, stop = str(self.tokenizer.decode(list(tokens[:-1] if ended else tokens))), self.settings.stop
        return text if stop is None or stop not in text else text[: text.index(stop) + len(stop)]


def sampler_of(task: Task, data: Data, scoring: Scoring) -> Sampler:
    """Return the sampler of a run's model."""
    return Sampler(
        settings=task.config.evaluation,
        form=data.form,
        scoring=scoring,
        tokenizer=data.tokenizer,
        graphdef=task.model.graphdef,
        max_positions=task.model.source.spec.max_positions,
        seed=task.config.seed,
        options=task.compiler_options,
    )
