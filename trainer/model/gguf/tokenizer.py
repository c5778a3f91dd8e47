"""Builds a tokenizer from what a GGUF file states: tokens, their kinds, merges or scores, special ids, chat template.

Two models of tokenizers are read. `gpt2` is byte-level BPE: its merges are in the file, its way of splitting by name.
`llama` is SentencePiece's BPE, whose merges are not in the file: a piece is merged out of any two pieces that make it,
those with the highest score first.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, normalizers
from tokenizers.models import BPE
from tokenizers.processors import TemplateProcessing

from trainer.model.gguf.header import Gguf
from trainer.model.gguf.splitting import OF_ARCHITECTURE, SPLITTINGS

SPACE = "\u2581"
"""Stands for a space in SentencePiece's tokens."""

CONTROL, USER_DEFINED = 3, 4
"""Kinds of tokens that a text is cut at."""

SPECIAL = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}


class GgufTokenizerError(ValueError):
    """A file whose tokenizer cannot be built; the text states why."""


def has_tokenizer(gguf: Gguf) -> bool:
    """Return whether a file has tokens."""
    return bool(gguf.metadata.get("tokenizer.ggml.tokens"))


def tokenizer_of(gguf: Gguf) -> Any:
    """Return a file's tokenizer, as transformers' fast tokenizers are, with the file's chat template.

    Raises:
        GgufTokenizerError: it is missing, or of a kind that is not read.
    """
    from transformers import PreTrainedTokenizerFast

    tokens = read_stated(gguf, "tokens", list)
    kind = read_stated(gguf, "model", str)
    if kind not in BUILDERS:
        message = f"its tokenizer.ggml.model is {kind!r}, and {' and '.join(BUILDERS)} are read"
        raise GgufTokenizerError(message)
    backend, begins = BUILDERS[kind](gguf, tokens)
    add_marked(backend, gguf, tokens)
    named = {name: special_token(gguf, key, tokens) for name, key in SPECIAL.items()}
    frame(backend, gguf, tokens, begins=begins)
    stated = {name: gguf.metadata.get(f"tokenizer.chat_template.{name}") for name in named_templates(gguf)}
    templates = {name: text for name, text in stated.items() if isinstance(text, str)}
    if isinstance(default := gguf.metadata.get("tokenizer.chat_template"), str):
        templates["default"] = default
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=backend,
        chat_template=templates if templates.keys() - {"default"} else templates.get("default"),
        clean_up_tokenization_spaces=False,
        model_max_length=sys.maxsize,
        **{name: token for name, token in named.items() if token is not None},
    )


def named_templates(gguf: Gguf) -> list[str]:
    """Return the names of a file's chat templates besides the default one."""
    names = gguf.metadata.get("tokenizer.chat_templates")
    return [str(name) for name in names] if isinstance(names, list) else []


def read_stated(gguf: Gguf, key: str, kind: type) -> Any:
    """Return what the file states of its tokenizer under a key."""
    value = gguf.metadata.get(f"tokenizer.ggml.{key}")
    if not isinstance(value, kind) or not value:
        message = f"it has no tokenizer.ggml.{key}"
        raise GgufTokenizerError(message)
    return value


def byte_level(gguf: Gguf, tokens: list[str]) -> tuple[Tokenizer, bool]:
    """Return byte-level BPE, and whether texts begin with the begin token by default."""
    name = str(gguf.metadata.get("tokenizer.ggml.pre") or OF_ARCHITECTURE.get(gguf.architecture))
    if name not in SPLITTINGS:
        message = f"its tokenizer.ggml.pre is {name!r}, and {', '.join(SPLITTINGS)} are read"
        raise GgufTokenizerError(message)
    splitting = SPLITTINGS[name]
    merges = [tuple(merge.split(" ")) for merge in read_stated(gguf, "merges", list)]
    vocab = ids_of(tokens)
    for merge in merges:
        if len(merge) != 2 or not {*merge, "".join(merge)} <= vocab.keys():
            message = f"it merges {' '.join(merge)!r}, which is not made of its tokens"
            raise GgufTokenizerError(message)
    backend = Tokenizer(BPE(vocab=vocab, merges=merges, fuse_unk=False, ignore_merges=splitting.whole_words))
    if splitting.composed:
        backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = splitting.make()
    backend.decoder = decoders.ByteLevel()
    return backend, splitting.begins


def sentence_piece(gguf: Gguf, tokens: list[str]) -> tuple[Tokenizer, bool]:
    """Return SentencePiece's BPE, and that texts begin with the begin token by default.

    Gemma's files keep tokens of several spaces as spaces, and their scores do not follow the order of merges; the
    order of its tokens does.
    """
    gemma = gguf.architecture.startswith("gemma")
    if gemma:
        tokens = [SPACE * len(token) if len(token) > 1 and not token.strip(" ") else token for token in tokens]
    scores = gguf.metadata.get("tokenizer.ggml.scores")
    if scores is None or len(scores) != len(tokens):
        message = f"it has {len(tokens):,} tokens and {0 if scores is None else len(scores):,} scores"
        raise GgufTokenizerError(message)
    vocab = ids_of(tokens)
    ranks = [-float(number) for number in range(len(tokens))] if gemma else scores.tolist()
    merges = implied_merges(tokens, ranks, vocab)
    unknown = special_token(gguf, "unknown", tokens)
    backend = Tokenizer(BPE(vocab=vocab, merges=merges, unk_token=unknown, fuse_unk=True, byte_fallback=True))
    prefixed = bool(gguf.metadata.get("tokenizer.ggml.add_space_prefix", True)) and not gemma
    spaces = normalizers.Replace(" ", SPACE)
    backend.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), spaces]) if prefixed else spaces
    stripped = [decoders.Strip(" ", 1, 0)] if prefixed else []
    backend.decoder = decoders.Sequence(
        [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *stripped]
    )
    return backend, True


BUILDERS = {"gpt2": byte_level, "llama": sentence_piece}


def ids_of(tokens: Sequence[str]) -> dict[str, int]:
    """Return each token's id.

    Raises:
        GgufTokenizerError: a token stands there twice.
    """
    ids = {token: number for number, token in enumerate(tokens)}
    if len(ids) < len(tokens):
        twice = next(token for number, token in enumerate(tokens) if ids[token] != number)
        message = f"the token {twice!r} stands in it twice"
        raise GgufTokenizerError(message)
    return ids


def implied_merges(tokens: Sequence[str], scores: Sequence[float], vocab: dict[str, int]) -> list[tuple[str, str]]:
    """Return the pairs of tokens that make a token, those that make the one with the highest score first.

    Of one token those with the longer beginning come first. The tokens a, b, c, bc and abc, in the order of their
    scores, give (b, c) and then (a, bc).
    """
    found = [
        (score, place, token)
        for token, score in zip(tokens, scores, strict=True)
        for place in range(1, len(token))
        if token[:place] in vocab and token[place:] in vocab
    ]
    found.sort(key=lambda each: (-each[0], -each[1], each[1] - len(each[2])))
    return [(token[:place], token[place:]) for _, place, token in found]


def add_marked(backend: Tokenizer, gguf: Gguf, tokens: Sequence[str]) -> None:
    """Tell the tokenizer which tokens a text is cut at: special ones, and those that a user added."""
    kinds = gguf.metadata.get("tokenizer.ggml.token_type")
    if kinds is None or len(kinds) != len(tokens):
        return
    marked = [
        (token, kind) for token, kind in zip(tokens, kinds.tolist(), strict=True) if kind in (CONTROL, USER_DEFINED)
    ]
    backend.add_special_tokens([AddedToken(token, normalized=False) for token, kind in marked if kind == CONTROL])
    known = backend.get_vocab(with_added_tokens=False)
    backend.add_tokens(
        [AddedToken(token, normalized=False) for token, kind in marked if kind == USER_DEFINED and token in known]
    )


def special_token(gguf: Gguf, name: str, tokens: Sequence[str]) -> str | None:
    """Return a special token, or None if the file names none.

    Raises:
        GgufTokenizerError: its id is not that of a token.
    """
    number = gguf.metadata.get(f"tokenizer.ggml.{name}_token_id")
    if number is None or number == 2**32 - 1:
        return None
    if not isinstance(number, int) or not 0 <= number < len(tokens):
        message = f"its tokenizer.ggml.{name}_token_id is {number}, and it has {len(tokens):,} tokens"
        raise GgufTokenizerError(message)
    return tokens[number]


def frame(backend: Tokenizer, gguf: Gguf, tokens: Sequence[str], *, begins: bool) -> None:
    """Have the tokenizer put begin and end tokens around texts, as the file states."""
    first = special_token(gguf, "bos", tokens) if gguf.metadata.get("tokenizer.ggml.add_bos_token", begins) else None
    last = special_token(gguf, "eos", tokens) if gguf.metadata.get("tokenizer.ggml.add_eos_token", False) else None
    if first is None and last is None:
        return
    around = [token for token in (first, last) if token is not None]
    single = [*([first] if first else []), "$A", *([last] if last else [])]
    pair = [*single, *([first] if first else []), "$B", *([last] if last else [])]
    backend.post_processor = TemplateProcessing(
        single=single,
        pair=pair,
        special_tokens=[(token, backend.token_to_id(token)) for token in dict.fromkeys(around)],
    )
