"""Whether a model that was written in another format still answers as before: fixed prompts, put to both.

What is stated is counted: how many tokens of greedy answers are equal up to the first that is not, and how far logits
lie apart. Where `llama-cpp-python` is installed, llama.cpp answers as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from trainer.generate.language_model import LanguageModel, generate
from trainer.model.gguf.tokens import probes

PROMPTS = (
    "The capital of France is",
    "Question: What is 17 + 25?\nAnswer:",
    "Once upon a time there was a",
    "def fibonacci(n):\n    ",
    "Translate to German: Good morning, how are you?\n",
    "A list of three colours:\n1.",
    "The opposite of hot is",
    "In 1969, the first people",
)
NEW_TOKENS = 24


def agreement(before: LanguageModel, after: LanguageModel, tokenizers: tuple[Any, Any], path: Path) -> dict[str, Any]:
    """Return how far two models agree, and llama.cpp with them.

    Args:
        before: the parameters that were written.
        after: what was read again.
        tokenizers: of the one and of the other.
        path: the file, for llama.cpp.
    """
    texts = [*PROMPTS, *probes(tokenizers[0])]
    split, again = ([tokenizer(text).input_ids for text in texts] for tokenizer in tokenizers)
    prompts = split[: len(PROMPTS)]
    answers = [answer_prompts(before, prompts), answer_prompts(after, prompts)]
    theirs = llama_cpp(path, prompts, texts)
    return {
        "texts": len(texts),
        "texts_with_equal_tokens": sum(a == b for a, b in zip(split, again, strict=True)),
        "prompts": len(PROMPTS),
        "new_tokens": NEW_TOKENS,
        "tokens_equal": equal_tokens(*answers),
        "first_tokens_equal": sum(a[0] == b[0] for a, b in zip(*answers, strict=True)),
        "largest_logit_difference": largest_difference(before, after, prompts),
        "llama_cpp": None
        if theirs is None
        else {
            "version": version("llama-cpp-python"),
            "prompts_with_equal_tokens": sum(a == b for a, b in zip(theirs.texts, prompts, strict=False)),
            "texts_with_equal_tokens": sum(a == b for a, b in zip(theirs.texts, split, strict=True)),
            "tokens_equal": equal_tokens(answers[1], theirs.answers),
        },
    }


def answer_prompts(model: LanguageModel, prompts: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return the greedy answer to each prompt."""
    room = NEW_TOKENS
    if model.spec.learned_positions:
        room = min(NEW_TOKENS, model.spec.max_positions - max(map(len, prompts)))
    rows: list[list[int]] = generate(model, prompts, max_new_tokens=room).tolist()
    return rows


def equal_tokens(ours: Sequence[Sequence[int]], theirs: Sequence[Sequence[int]]) -> int:
    """Return the tokens that answers have in common from their beginnings: 1 of [5, 7, 8] and [5, 9, 8]."""
    return sum(
        next((place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
        for one, other in zip(ours, theirs, strict=True)
    )


def largest_difference(before: LanguageModel, after: LanguageModel, prompts: Sequence[Sequence[int]]) -> float:
    """Return the largest difference of logits behind the prompts, as a share of the largest logit."""
    difference = largest = 0.0
    for prompt in prompts:
        one, other = (np.asarray(model(prompt)[0, -1]) for model in (before, after))
        difference, largest = max(difference, float(np.abs(one - other).max())), max(largest, float(np.abs(one).max()))
    return difference / largest


class Theirs(NamedTuple):
    """What llama.cpp makes of texts and prompts, in tokens."""

    texts: list[list[int]]
    answers: list[list[int]]


def llama_cpp(path: Path, prompts: Sequence[Sequence[int]], texts: Sequence[str]) -> Theirs | None:
    """Return what llama.cpp makes of texts and prompts, None where it is not installed."""
    if find_spec("llama_cpp") is None:
        return None
    from llama_cpp import Llama

    model = Llama(model_path=str(path), n_ctx=max(map(len, prompts)) + NEW_TOKENS + 1, verbose=False)
    tokens = [model.tokenize(text.encode(), add_bos=True, special=True) for text in texts]
    answers = []
    for prompt in prompts:
        model.reset()
        writes = model.generate(list(prompt), top_k=1, temp=0.0, repeat_penalty=1.0)
        answers.append([int(token) for token, _ in zip(writes, range(NEW_TOKENS), strict=False)])
    return Theirs(tokens, answers)
