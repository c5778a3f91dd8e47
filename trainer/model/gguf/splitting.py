"""How a text is split before byte pairs are merged, by the name that llama.cpp has for it.

A GGUF file states only the name. The patterns are those of the models' own tokenizer.json; llama.cpp's
`unicode.cpp` computes the same ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tokenizers import Regex
from tokenizers.pre_tokenizers import ByteLevel, Digits, PreTokenizer, Sequence, Split

CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"

LLAMA3 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
TEKKEN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True, kw_only=True)
class Splitting:
    """What the name of a way of splitting stands for."""

    make: Callable[[], PreTokenizer]
    whole_words: bool = False
    """A word that is a token is taken as it is, whatever merges would make of it."""
    begins: bool = False
    """Texts begin with the begin token where the file does not state it."""
    composed: bool = False
    """Characters are composed first (NFC)."""


def by_pattern(pattern: str) -> Callable[[], PreTokenizer]:
    """Return what makes the splitting by a regular expression."""
    return lambda: Sequence([Split(Regex(pattern), "isolated"), ByteLevel(add_prefix_space=False, use_regex=False)])


def by_digits() -> PreTokenizer:
    """Return GPT-2's splitting with each digit apart."""
    return Sequence([Digits(individual_digits=True), ByteLevel(add_prefix_space=False)])


SPLITTINGS: Mapping[str, Splitting] = {
    "gpt-2": Splitting(make=lambda: ByteLevel(add_prefix_space=False)),
    "smollm": Splitting(make=by_digits),
    **dict.fromkeys(
        ("llama-bpe", "llama3", "llama-v3"), Splitting(make=by_pattern(LLAMA3), whole_words=True, begins=True)
    ),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen"), Splitting(make=by_pattern(QWEN2), composed=True)),
    "tekken": Splitting(make=by_pattern(TEKKEN), whole_words=True, begins=True),
}

OF_ARCHITECTURE = {"gpt2": "gpt-2", "qwen2": "qwen2", "qwen3": "qwen2"}
"""What early files, which do not state a name, can mean."""
