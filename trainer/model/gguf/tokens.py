"""What a GGUF file states of a tokenizer: the inverse of `tokenizer.py`, compared with it before writing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from schemas.problems import ProblemError, problem_of
from trainer.model.gguf.header import Gguf
from trainer.model.gguf.splitting import SPLITTINGS
from trainer.model.gguf.tokenizer import CONTROL, SPECIAL, USER_DEFINED, GgufTokenizerError, tokenizer_of

NORMAL, UNKNOWN, UNUSED, BYTE = 1, 2, 5, 6
"""Kinds of tokens besides those that a text is cut at."""

PROBES = (
    "Hello, world! It's 12345 o'clock; don't WE'RE I'LL ask.",
    "  two\n\n  lines\r\n\tand tabs \t 3.14159 x=1\n",
    "na\u00efve caf\u00e9 e\u0301 \ufb01 \u00bd \u2167 \u041f\u0440\u0438 \u65e5\u672c\u8a9e \U0001f980",
    "def f(x):\n        return x == 1  # 100%\n",
    "a\u00a0b\u3000c\u200d\u4e2d\u6587123abc 1234567890 \u0661\u0662\u0663 don\u2019t 'S foo_bar-baz/qux!!!\n\n   \n ",
    "a",
    "",
)
"""Texts that every way of splitting treats in its own way."""

UNSTATED = {
    "lstrip": "takes the spaces before it",
    "rstrip": "takes the spaces behind it",
    "single_word": "is found as a single word only",
}
"""Flags of added tokens that a GGUF does not have, and what they do."""


def probes(tokenizer: Any) -> list[str]:
    """Return texts by which tokenizers can be compared: `PROBES`, and every added token beside letters and spaces."""
    added = [token for token, _ in sorted(tokenizer.get_added_vocab().items(), key=lambda each: each[1])]
    return [*PROBES, *(f"{token}a{token}b {token} c  {token}\n{token}{token}" for token in added)]


def tokenizer_metadata(tokenizer: Any, vocab: int, *, architecture: str, end_token_id: int | None) -> dict[str, Any]:
    """Return the tokenizer's keys.

    Args:
        tokenizer: of transformers, with a backend of the tokenizers library.
        vocab: rows of the token table; ids without a token are stated as unused.
        architecture: llama.cpp's name.
        end_token_id: what the model was taught to stop at besides the end token, or None.

    Raises:
        ProblemError: exit code 2; a tokenizer built from these keys gives other tokens.
    """
    backend: Any = getattr(tokenizer, "backend_tokenizer", None)
    document = {} if backend is None else json.loads(backend.to_str())
    model = document.get("model", {"type": "not of the tokenizers library"})
    if model["type"] != "BPE":
        because = f"its model is {model['type']}, and BPE can be stated"
        raise tokenizer_refusal(because)
    for token in document["added_tokens"]:
        for flag in (flag for flag in UNSTATED if token[flag]):
            because = f"the token {token['content']!r} {UNSTATED[flag]} ({flag}), which a GGUF does not state"
            raise tokenizer_refusal(because)
    ids = {number: token for token, number in backend.get_vocab(with_added_tokens=True).items()}
    tokens = [ids.get(number, f"[PAD{number}]") for number in range(vocab)]
    found: dict[str, Any] = {
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": kinds(document, ids, vocab),
        "tokenizer.ggml.add_bos_token": begins(tokenizer),
        **{
            f"tokenizer.ggml.{name}_token_id": getattr(tokenizer, f"{special}_id")
            for special, name in SPECIAL.items()
            if getattr(tokenizer, f"{special}_id") is not None
        },
    }
    if end_token_id is not None and end_token_id != tokenizer.eos_token_id:
        found["tokenizer.ggml.eot_token_id"] = end_token_id
    found |= template_metadata(tokenizer.chat_template)
    made = pieces(document, vocab) if model["byte_fallback"] else byte_level(backend, document)
    refuse_other_tokens(tokenizer, found | made, architecture)
    return found | made


def template_metadata(templates: str | Mapping[str, str] | None) -> dict[str, Any]:
    """Return the keys of the chat template, and of those with other names as llama.cpp's converter writes them."""
    named = dict(templates) if isinstance(templates, Mapping) else {"default": templates} if templates else {}
    default = {"tokenizer.chat_template": named.pop("default")} if "default" in named else {}
    others = {f"tokenizer.chat_template.{name}": text for name, text in sorted(named.items())}
    return default | others | ({"tokenizer.chat_templates": sorted(named)} if named else {})


def kinds(document: Mapping[str, Any], ids: Mapping[int, str], vocab: int) -> list[int]:
    """Return the kind of each token."""
    added = {token["id"]: CONTROL if token["special"] else USER_DEFINED for token in document["added_tokens"]}
    unknown = document["model"].get("unk_token")
    found = []
    for number in range(vocab):
        token = ids.get(number)
        is_byte = document["model"]["byte_fallback"] and token is not None and token.startswith("<0x")
        plain = UNUSED if token is None else BYTE if is_byte else UNKNOWN if token == unknown else NORMAL
        found.append(added.get(number, plain))
    return found


def begins(tokenizer: Any) -> bool:
    """Return whether texts begin with the begin token."""
    return tokenizer.bos_token_id is not None and tokenizer("a").input_ids[:1] == [tokenizer.bos_token_id]


def byte_level(backend: Any, document: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is stated of byte-level BPE alone."""
    composed = (document.get("normalizer") or {}).get("type") == "NFC"
    for name, splitting in SPLITTINGS.items():
        if (splitting.whole_words, splitting.composed) == (bool(document["model"].get("ignore_merges")), composed) and (
            backend.pre_tokenizer is not None and all(splits_alike(backend, splitting.make(), text) for text in PROBES)
        ):
            merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in document["model"]["merges"]]
            return {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": name, "tokenizer.ggml.merges": merges}
    because = f"it splits texts as none of {', '.join(SPLITTINGS)} does"
    raise tokenizer_refusal(because)


def splits_alike(backend: Any, other: Any, text: str) -> bool:
    """Return whether a text is split alike by a tokenizer and by another way."""
    return [word for word, _ in backend.pre_tokenizer.pre_tokenize_str(text)] == [
        word for word, _ in other.pre_tokenize_str(text)
    ]


def pieces(document: Mapping[str, Any], vocab: int) -> dict[str, Any]:
    """Return what is stated of SentencePiece's BPE alone: scores that fall with the ids, as its trainer gives them."""
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.scores": [-float(number) for number in range(vocab)],
        "tokenizer.ggml.add_space_prefix": "Prepend" in json.dumps(document.get("normalizer")),
    }


def refuse_other_tokens(tokenizer: Any, metadata: Mapping[str, Any], architecture: str) -> None:
    """Refuse keys out of which another tokenizer is built."""
    arrays = {key: np.array(metadata[key]) for key in NUMBERS if key in metadata}
    stated = {**metadata, **arrays, "general.architecture": architecture}
    try:
        again = tokenizer_of(Gguf(path=Path(), metadata=stated, tensors={}))
    except GgufTokenizerError as error:
        raise tokenizer_refusal(str(error)) from error
    for text in probes(tokenizer):
        if tokenizer(text).input_ids != again(text).input_ids:
            because = f"out of a GGUF {text[:40]!r} would be other tokens"
            raise tokenizer_refusal(because)


NUMBERS = ("tokenizer.ggml.scores", "tokenizer.ggml.token_type")
"""Keys whose values are lists of numbers."""


def tokenizer_refusal(because: str) -> ProblemError:
    """Return the refusal of a tokenizer."""
    what = f"The tokenizer cannot be written into a GGUF file: {because}."
    return ProblemError([problem_of("TP099", file="tokenizer", what=what)], exit_code=2)
