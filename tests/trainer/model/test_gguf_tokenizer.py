"""Tokenizers out of GGUF files against those of transformers and of tokenizers that were trained here."""

from pathlib import Path

import gguf_files
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from schemas.problems import ProblemError
from trainer.model.gguf import read_gguf
from trainer.model.gguf_tokenizer import GgufTokenizerError, build_tokenizer
from trainer.model.source import resolve

CASES = Path(__file__).parents[2] / "cases" / "models"
TEXTS = (
    *("", " ", "Hello  world", "1234567 8,910 3.5", "don't WE'RE I'LL", "a\n\n  b\r\nc\t d", "naïve café ﬁ e\u0301"),
    *("<|end|>over<|end|> 12", "日本語 мир 🦀", "  def f(x):\n        return x == 1", "x\u2581y", "!!!  13?! 1½Ⅷ"),
)
CORPUS = [*TEXTS, *("the quick brown fox jumps over 13 lazy dogs don't we're",) * 20] * 5
SPLITS = {
    "gpt-2": lambda: pre_tokenizers.ByteLevel(add_prefix_space=False),
    "smollm": lambda: pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    ),
}


def trained(split):
    """Return a byte-level tokenizer of 400 tokens, as its own library trains it."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = split
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(
        CORPUS, trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, special_tokens=["<|end|>"])
    )
    return made


def stated(made, pre):
    """Return what a GGUF file states of a byte-level tokenizer."""
    import json

    document = json.loads(made.to_str())
    ids = sorted(made.get_vocab().items(), key=lambda each: each[1])
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": [token for token, _ in ids],
        "tokenizer.ggml.token_type": [3 if token == "<|end|>" else 1 for token, _ in ids],
        "tokenizer.ggml.merges": [" ".join(merge) for merge in document["model"]["merges"]],
        "tokenizer.ggml.eos_token_id": made.token_to_id("<|end|>"),
        "tokenizer.chat_template": "{% for m in messages %}[{{ m['role'] }}]{{ m['content'] }}<|end|>{% endfor %}",
    }


def built(folder, metadata, architecture="llama"):
    return build_tokenizer(read_gguf(gguf_files.write(folder / "t.gguf", architecture, metadata, {})))


@pytest.mark.parametrize("pre", SPLITS)
def test_byte_level_tokens_are_those_that_were_trained(pre, tmp_path):
    made = trained(SPLITS[pre]())
    got = built(tmp_path, stated(made, pre))
    for text in TEXTS:
        ids = got(text).input_ids
        assert ids == made.encode(text).ids, text
        assert got.decode(ids) == text
    chat = [{"role": "user", "content": "Hi"}]
    assert got.apply_chat_template(chat, tokenize=False) == "[user]Hi<|end|>"
    assert (got.eos_token, got.bos_token) == ("<|end|>", None)


def test_splitting_of_qwen2_and_llama3_is_that_of_transformers(tmp_path):
    from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX

    from trainer.model.gguf_tokenizer import QWEN2, SPLITTINGS

    assert QWEN2 == PRETOKENIZE_REGEX
    words = {pre: [word for word, _ in SPLITTINGS[pre].make().pre_tokenize_str("ab 12345 I'M")] for pre in SPLITTINGS}
    assert words["llama-bpe"] == ["ab", "Ġ", "123", "45", "ĠI", "'M"]
    assert words["qwen2"] == ["ab", "Ġ", "1", "2", "3", "4", "5", "ĠI", "'M"]
    assert words["tekken"] == ["ab", "Ġ", "1", "2", "3", "4", "5", "ĠI", "'M"]
    assert words["gpt-2"] == ["ab", "Ġ12345", "ĠI", "'", "M"]
    assert words["smollm"] == ["ab", "Ġ", "1", "2", "3", "4", "5", "ĠI", "'", "M"]


PIECES = {
    "tokenizer.ggml.model": "llama",
    "tokenizer.ggml.tokens": [
        *("<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "\u2581", "a", "b", "c"),
        *("ab", "\u2581a", "abc", "\u2581ab", "bc"),
    ],
    "tokenizer.ggml.scores": [0.0] * 259 + [-1.0, -2.0, -3.0, -4.0, -5.0, -6.0, -7.0, -8.0, -9.0],
    "tokenizer.ggml.token_type": [2, 3, 3] + [6] * 256 + [1] * 9,
    "tokenizer.ggml.bos_token_id": 1,
    "tokenizer.ggml.eos_token_id": 2,
    "tokenizer.ggml.unknown_token_id": 0,
}


def test_pieces_are_merged_by_their_scores(tmp_path):
    """`▁abc`: first a and b, whose piece has the highest score, then ▁ab no more but abc before it; worked by hand."""
    got = built(tmp_path, PIECES)
    tokens = got.convert_ids_to_tokens(got("abc").input_ids)
    assert tokens == ["<s>", "\u2581", "abc"]
    assert got.convert_ids_to_tokens(got("cé").input_ids) == ["<s>", "\u2581", "c", "<0xC3>", "<0xA9>"]
    assert got.decode(got("abc cé  b").input_ids, skip_special_tokens=True) == "abc cé  b"
    plain = built(tmp_path, PIECES | {"tokenizer.ggml.add_space_prefix": False, "tokenizer.ggml.add_eos_token": True})
    assert plain.convert_ids_to_tokens(plain("ab").input_ids) == ["<s>", "ab", "</s>"]


@pytest.mark.parametrize(
    ("changed", "because"),
    [
        ({"tokenizer.ggml.tokens": []}, "tokenizer.ggml.tokens is missing"),
        ({"tokenizer.ggml.model": "bert"}, "tokenizer.ggml.model 'bert' is not supported, only gpt2 and llama"),
        ({"tokenizer.ggml.scores": [0.5]}, "it has 268 tokens and 1 scores"),
        ({"tokenizer.ggml.bos_token_id": 268}, "tokenizer.ggml.bos_token_id is 268, but there are 268 tokens"),
        (
            {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "falcon", "tokenizer.ggml.merges": ["a b"]},
            (
                "tokenizer.ggml.pre 'falcon' is not supported, only gpt-2, smollm, llama-bpe, llama3, llama-v3, qwen2, "
                "deepseek-r1-qwen, tekken"
            ),
        ),
        (
            {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "smollm"},
            "tokenizer.ggml.merges is missing",
        ),
        (
            {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "smollm", "tokenizer.ggml.merges": ["a b", "a d"]},
            "the merge 'a d' contains unknown tokens",
        ),
        ({"tokenizer.ggml.tokens": ["a"] * 268}, "the token 'a' is repeated"),
    ],
)
def test_a_tokenizer_that_cannot_be_built_is_named(changed, because, tmp_path):
    metadata = {key: value for key, value in (PIECES | changed).items() if value != []}
    with pytest.raises(GgufTokenizerError) as raised:
        built(tmp_path, metadata)
    assert str(raised.value) == because


def test_a_model_without_tokenizer_is_refused_with_a_way(tmp_path):
    source = resolve(str(gguf_files.from_folder(CASES / "llama", tmp_path / "m.gguf")))
    with pytest.raises(ProblemError) as raised:
        source.tokenizer()
    [problem] = raised.value.problems
    assert problem.code == "TP046"
    assert problem.what.endswith("cannot be built: tokenizer.ggml.tokens is missing.")
    assert not source.has_tokenizer
