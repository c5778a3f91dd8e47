"""Tokenizers in GGUF files: build one from a file's metadata, and the metadata from one.

Two models of tokenizers are supported. `gpt2` is byte-level BPE: its merges are in the file, its pre-tokenizer is given
by name. `llama` is SentencePiece's BPE without merges: two pieces merge into any piece they form, the highest score
first. Metadata is written only if a tokenizer built from it gives the same tokens.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, Digits, PreTokenizer, Split
from tokenizers.processors import TemplateProcessing

from schemas.problems import ProblemError, problem_of
from trainer.model.gguf import Gguf, GgufError, fail

SPACE = "\u2581"  # represents a space in SentencePiece's tokens
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
"""Token types; texts are split at control and user-defined tokens."""
SPECIAL = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}

# Patterns of the models' own tokenizer.json; llama.cpp's `unicode.cpp` implements the same ones.
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
    """A pre-tokenizer that llama.cpp knows by name."""

    splitter: PreTokenizer
    ignore_merges: bool = False  # a word that is a token stays whole, whatever the merges say
    add_bos: bool = False  # texts start with the begin token unless the file says otherwise
    is_nfc: bool = False  # characters are composed first


def _by_pattern(pattern: str) -> PreTokenizer:
    plain = ByteLevel(add_prefix_space=False, use_regex=False)
    return pre_tokenizers.Sequence([Split(Regex(pattern), "isolated"), plain])


_GPT2 = ByteLevel(add_prefix_space=False)
_LLAMA3 = Splitting(splitter=_by_pattern(LLAMA3), ignore_merges=True, add_bos=True)
SPLITTINGS: Mapping[str, Splitting] = {
    "gpt-2": Splitting(splitter=_GPT2),
    "smollm": Splitting(splitter=pre_tokenizers.Sequence([Digits(individual_digits=True), _GPT2])),
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3"), _LLAMA3),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen"), Splitting(splitter=_by_pattern(QWEN2), is_nfc=True)),
    "tekken": Splitting(splitter=_by_pattern(TEKKEN), ignore_merges=True, add_bos=True),
}
DEFAULT_SPLITTINGS = {"gpt2": "gpt-2", "qwen2": "qwen2", "qwen3": "qwen2"}
"""By architecture, for early files without a name."""


def build_tokenizer(gguf: Gguf) -> Any:
    """Return a file's tokenizer, with chat templates, as one of transformers' fast ones, or raise a GgufError."""
    from transformers import PreTrainedTokenizerFast

    metadata = gguf.metadata
    tokens, kind = _required(metadata, "tokens", list), _required(metadata, "model", str)
    if kind not in ("gpt2", "llama"):
        fail(f"tokenizer.ggml.model {kind!r} is not supported, only gpt2 and llama")
    backend, add_bos = (_byte_level if kind == "gpt2" else _sentence_piece)(gguf, tokens)
    kinds = metadata.get("tokenizer.ggml.token_type")
    if kinds is not None and len(kinds) == len(tokens):
        known = backend.get_vocab(with_added_tokens=False)
        for mark, add in ((CONTROL, backend.add_special_tokens), (USER_DEFINED, backend.add_tokens)):
            marked = [tokens[number] for number in np.flatnonzero(kinds == mark)]
            add([AddedToken(token, normalized=False) for token in marked if token in known])
    special = {name: _special_token(metadata, key, tokens) for name, key in SPECIAL.items()}
    _add_template(backend, metadata, tokens, add_bos=add_bos)
    names = {str(name): f".{name}" for name in metadata.get("tokenizer.chat_templates") or ()} | {"default": ""}
    templates = {name: metadata.get(f"tokenizer.chat_template{end}") for name, end in names.items()}
    templates = {name: text for name, text in templates.items() if isinstance(text, str)}
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=backend,
        chat_template=templates if templates.keys() - {"default"} else templates.get("default"),
        clean_up_tokenization_spaces=False,
        model_max_length=sys.maxsize,
        **{name: token for name, token in special.items() if token is not None},
    )


def _required(metadata: Mapping[str, Any], key: str, kind: type) -> Any:
    value = metadata.get(f"tokenizer.ggml.{key}")
    if not isinstance(value, kind) or not value:
        fail(f"tokenizer.ggml.{key} is missing")
    return value


def _byte_level(gguf: Gguf, tokens: list[str]) -> tuple[Tokenizer, bool]:
    """Return byte-level BPE, and whether texts start with the begin token by default."""
    name = str(gguf.metadata.get("tokenizer.ggml.pre") or DEFAULT_SPLITTINGS.get(gguf.architecture))
    if name not in SPLITTINGS:
        fail(f"tokenizer.ggml.pre {name!r} is not supported, only {', '.join(SPLITTINGS)}")
    splitting = SPLITTINGS[name]
    merges = [tuple(merge.split(" ")) for merge in _required(gguf.metadata, "merges", list)]
    vocab = _token_ids(tokens)
    for merge in merges:
        if len(merge) != 2 or not {*merge, "".join(merge)} <= vocab.keys():
            fail(f"the merge {' '.join(merge)!r} contains unknown tokens")
    backend = Tokenizer(BPE(vocab=vocab, merges=merges, fuse_unk=False, ignore_merges=splitting.ignore_merges))
    if splitting.is_nfc:
        backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = splitting.splitter
    backend.decoder = decoders.ByteLevel()
    return backend, splitting.add_bos


def _sentence_piece(gguf: Gguf, tokens: list[str]) -> tuple[Tokenizer, bool]:
    """Return SentencePiece's BPE, and that texts start with the begin token by default.

    Gemma's files store tokens of several spaces as spaces, and their scores do not follow the order of merges; the
    order of the tokens does.
    """
    is_gemma = gguf.architecture.startswith("gemma")
    if is_gemma:
        tokens = [SPACE * len(token) if len(token) > 1 and not token.strip(" ") else token for token in tokens]
    scores = gguf.metadata.get("tokenizer.ggml.scores")
    if scores is None or len(scores) != len(tokens):
        fail(f"it has {len(tokens):,} tokens and {0 if scores is None else len(scores):,} scores")
    vocab = _token_ids(tokens)
    ranks = [-float(number) for number in range(len(tokens))] if is_gemma else scores.tolist()
    merges = implied_merges(tokens, ranks, vocab)
    unknown = _special_token(gguf.metadata, "unknown", tokens)
    backend = Tokenizer(BPE(vocab=vocab, merges=merges, unk_token=unknown, fuse_unk=True, byte_fallback=True))
    has_prefix = bool(gguf.metadata.get("tokenizer.ggml.add_space_prefix", True)) and not is_gemma
    spaces = normalizers.Replace(" ", SPACE)
    backend.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), spaces]) if has_prefix else spaces
    strip = [decoders.Strip(" ", 1, 0)] if has_prefix else []
    steps = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    backend.decoder = decoders.Sequence(steps)
    return backend, True


def _token_ids(tokens: Sequence[str]) -> dict[str, int]:
    ids = {token: number for number, token in enumerate(tokens)}
    if len(ids) < len(tokens):
        fail(f"the token {next(token for number, token in enumerate(tokens) if ids[token] != number)!r} is repeated")
    return ids


def implied_merges(tokens: Sequence[str], scores: Sequence[float], vocab: dict[str, int]) -> list[tuple[str, str]]:
    """Return the pairs of tokens that form a token, by descending score of the result.

    For one token, those with the longer first part come first. The tokens a, b, c, bc and abc, in the order of their
    scores, give (b, c) and then (a, bc).
    """
    pairs = [
        (score, split, token)
        for token, score in zip(tokens, scores, strict=True)
        for split in range(1, len(token))
        if token[:split] in vocab and token[split:] in vocab
    ]
    pairs.sort(key=lambda pair: (-pair[0], -pair[1], pair[1] - len(pair[2])))
    return [(token[:split], token[split:]) for _, split, token in pairs]


def _special_token(metadata: Mapping[str, Any], name: str, tokens: Sequence[str]) -> str | None:
    number = metadata.get(f"tokenizer.ggml.{name}_token_id")
    if number is None or number == 2**32 - 1:
        return None
    if not isinstance(number, int) or not 0 <= number < len(tokens):
        fail(f"tokenizer.ggml.{name}_token_id is {number}, but there are {len(tokens):,} tokens")
    return tokens[number]


def _add_template(backend: Tokenizer, metadata: Mapping[str, Any], tokens: Sequence[str], *, add_bos: bool) -> None:
    """Make the tokenizer add begin and end tokens as the file states."""
    is_added = {"bos": metadata.get("tokenizer.ggml.add_bos_token", add_bos)}
    is_added["eos"] = metadata.get("tokenizer.ggml.add_eos_token", False)
    before, after = (
        [token] if is_wanted and (token := _special_token(metadata, name, tokens)) else []
        for name, is_wanted in is_added.items()
    )
    if before or after:
        single = [*before, "$A", *after]
        backend.post_processor = TemplateProcessing(
            single=single,
            pair=[*single, *before, "$B", *after],
            special_tokens=[(token, backend.token_to_id(token)) for token in dict.fromkeys(before + after)],
        )


PROBES = (
    "Hello, world! It's 12345 o'clock; don't WE'RE I'LL ask.",
    "  two\n\n  lines\r\n\tand tabs \t 3.14159 x=1\n",
    "na\u00efve caf\u00e9 e\u0301 \ufb01 \u00bd \u2167 \u041f\u0440\u0438 \u65e5\u672c\u8a9e \U0001f980",
    "def f(x):\n        return x == 1  # 100%\n",
    "a\u00a0b\u3000c\u200d\u4e2d\u6587123abc 1234567890 \u0661\u0662\u0663 don\u2019t 'S foo_bar-baz/qux!!!\n\n   \n ",
    "a",
    "",
)
"""Texts that every pre-tokenizer splits differently."""


def tokenizer_probes(tokenizer: Any) -> list[str]:
    """Return texts to compare tokenizers with: `PROBES`, and every added token next to letters and spaces."""
    added = [token for token, _ in sorted(tokenizer.get_added_vocab().items(), key=lambda item: item[1])]
    return [*PROBES, *(f"{token}a{token}b {token} c  {token}\n{token}{token}" for token in added)]


def tokenizer_metadata(tokenizer: Any, vocab: int, *, architecture: str, end_token_id: int | None) -> dict[str, Any]:
    """Return the metadata of one of transformers' fast tokenizers.

    `vocab` is the number of rows of the token table, `end_token_id` another id that the model was trained to stop at.
    If a tokenizer built from the metadata would give other tokens, raise a ProblemError with exit code 2.
    """
    backend: Any = getattr(tokenizer, "backend_tokenizer", None)
    document = {} if backend is None else json.loads(backend.to_str())
    model = document.get("model", {"type": "not based on the tokenizers library"})
    if model["type"] != "BPE":
        raise _cannot_write(because=f"its model is {model['type']}, not BPE")
    for token in document["added_tokens"]:
        if flags := [flag for flag in ("lstrip", "rstrip", "single_word") if token[flag]]:
            raise _cannot_write(because=f"the token {token['content']!r} has the flag {flags[0]}")
    ids = {number: token for token, number in backend.get_vocab(with_added_tokens=True).items()}
    has_bos = tokenizer.bos_token_id is not None and tokenizer("a").input_ids[:1] == [tokenizer.bos_token_id]
    special = {name: getattr(tokenizer, f"{key}_id") for key, name in SPECIAL.items()}
    templates = tokenizer.chat_template or {}
    templates = dict(templates) if isinstance(templates, Mapping) else {"default": templates}
    metadata: dict[str, Any] = {
        "tokenizer.ggml.tokens": [ids.get(number, f"[PAD{number}]") for number in range(vocab)],
        "tokenizer.ggml.token_type": _token_types(document, ids, vocab),
        "tokenizer.ggml.add_bos_token": has_bos,
        **{f"tokenizer.ggml.{name}_token_id": number for name, number in special.items() if number is not None},
    }
    if end_token_id is not None and end_token_id != tokenizer.eos_token_id:
        metadata["tokenizer.ggml.eot_token_id"] = end_token_id
    if "default" in templates:
        metadata["tokenizer.chat_template"] = templates.pop("default")
    metadata |= {f"tokenizer.chat_template.{name}": text for name, text in sorted(templates.items())}
    metadata |= {"tokenizer.chat_templates": sorted(templates)} if templates else {}
    if model["byte_fallback"]:  # SentencePiece: scores that decrease with the ids, as its trainer makes them
        metadata |= {"tokenizer.ggml.model": "llama", "tokenizer.ggml.pre": "default"}
        metadata["tokenizer.ggml.scores"] = [-float(number) for number in range(vocab)]
        metadata["tokenizer.ggml.add_space_prefix"] = "Prepend" in json.dumps(document.get("normalizer"))
    else:
        metadata |= {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": _splitting_name(backend, document)}
        merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]
        metadata["tokenizer.ggml.merges"] = merges
    numeric = ("tokenizer.ggml.scores", "tokenizer.ggml.token_type")
    stated = {key: np.array(value) if key in numeric else value for key, value in metadata.items()}
    stated["general.architecture"] = architecture
    try:
        rebuilt = build_tokenizer(Gguf(path=Path(), metadata=stated, tensors={}))
    except GgufError as error:
        raise _cannot_write(because=str(error)) from error
    for text in tokenizer_probes(tokenizer):
        if tokenizer(text).input_ids != rebuilt(text).input_ids:
            raise _cannot_write(because=f"the tokens of {text[:40]!r} would differ")
    return metadata


def _token_types(document: Mapping[str, Any], ids: Mapping[int, str], vocab: int) -> list[int]:
    model = document["model"]
    types = [UNUSED] * vocab
    for number, token in ids.items():
        if number < vocab:
            is_byte = model["byte_fallback"] and token.startswith("<0x")
            types[number] = BYTE if is_byte else UNKNOWN if token == model.get("unk_token") else NORMAL
    for added in document["added_tokens"]:
        if added["id"] < vocab:
            types[added["id"]] = CONTROL if added["special"] else USER_DEFINED
    return types


def _splitting_name(backend: Any, document: Mapping[str, Any]) -> str:
    """Return llama.cpp's name of the pre-tokenizer that splits `PROBES` alike."""

    def split(splitter: Any, text: str) -> list[str]:
        return [word for word, _ in splitter.pre_tokenize_str(text)]

    is_nfc = (document.get("normalizer") or {}).get("type") == "NFC"
    options, own = (bool(document["model"].get("ignore_merges")), is_nfc), backend.pre_tokenizer
    for name, each in SPLITTINGS.items():
        is_alike = own is not None and (each.ignore_merges, each.is_nfc) == options
        if is_alike and all(split(own, text) == split(each.splitter, text) for text in PROBES):
            return name
    raise _cannot_write(because=f"its pre-tokenizer is not one of {', '.join(SPLITTINGS)}")


def _cannot_write(*, because: str) -> ProblemError:
    what = f"The tokenizer cannot be written into a GGUF file: {because}."
    return ProblemError([problem_of("TP099", file="tokenizer", what=what)], exit_code=2)
