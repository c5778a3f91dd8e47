"""A model's tokenizer, form of prompts and settings: all that its answers depend on besides its parameters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from flax import nnx

from evidence.scores.reading import Scoring
from trainer.config.tree import EvaluationConfig
from trainer.data.encode import Tokenizer, end_token_id
from trainer.data.prompts import prompts_of
from trainer.data.render import PromptForm
from trainer.data.rows import RowFile
from trainer.generate.decode import Completion, generate
from trainer.model.decoder import Decoder
from trainer.model.params import Params
from trainer.recorder.processor import CompilerOptions


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
        return prompts_of(items, self.form, self.tokenizer)

    def has_room(self, prompt: Sequence[int]) -> bool:
        """Return whether a prompt can be answered: it has a token, and leaves room for an output."""
        return 0 < len(prompt) <= self.max_prompt_tokens

    def answer(
        self, params: Params, prompts: Sequence[Sequence[int]], like: Sequence[Sequence[int]] = ()
    ) -> Iterator[Completion]:
        """Yield the greedy completion of each prompt, with its last hidden states.

        Args:
            params: by name.
            prompts: token ids.
            like: prompts that these are a part of; see `generate`.
        """
        return generate(
            self.graphdef,
            params,
            prompts,
            max_new_tokens=self.settings.max_new_tokens,
            stop_token_id=self.stop_token_id,
            batch_size=self.settings.batch_size,
            like=like,
            keep_states=True,
            options=self.options,
        )
