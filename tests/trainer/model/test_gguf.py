"""GGUF: hostile headers, every type of tensor, models in and out as llama.cpp's converter writes them."""

import json
import re
import struct
import tracemalloc
from dataclasses import replace

import gguf
import gguf_files
import numpy as np
import pytest
from gguf_cases import CASES, NAMES, STATED, TEMPLATE, TEXT, divisors, folder_of, params_of, with_tokenizer
from refusals import catch_problem
from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX

from schemas.problems import rule
from trainer.model import gguf as gguf_reading
from trainer.model.export import encode_blocks, export, export_gguf, tensor_type
from trainer.model.families import StoredTensor
from trainer.model.gguf import GgufError, read_gguf
from trainer.model.gguf_tokenizer import QWEN2, SPLITTINGS, build_tokenizer, tokenizer_probes
from trainer.model.source import resolve

QUANTISABLE = ("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0")
U32, F32, STRING, ARRAY, U64 = 4, 6, 8, 9, 10


def text(value):
    return struct.pack("<Q", len(value.encode())) + value.encode()


def header(*, tensors=0, keys=0, version=3, magic=b"GGUF"):
    return magic + struct.pack("<IQQ", version, tensors, keys)


def key(name, kind, value):
    return text(name) + struct.pack("<I", kind) + value


def tensor(name, dimensions, kind=0, offset=0):
    shape = struct.pack(f"<I{len(dimensions)}Q", len(dimensions), *dimensions)
    return text(name) + shape + struct.pack("<IQ", kind, offset)


def refusal(path, content):
    path.write_bytes(content)
    problem = catch_problem(lambda: read_gguf(path))
    assert (problem.code, problem.file) == ("TP038", str(path))
    return problem.what


@pytest.mark.parametrize("kind", QUANTISABLE)
@pytest.mark.parametrize("chunk", [200, gguf_reading.CHUNK], ids=["in parts", "whole"])
def test_a_tensor_is_dequantised_as_by_the_gguf_package(kind, chunk, tmp_path, monkeypatch):
    monkeypatch.setattr(gguf_reading, "CHUNK", chunk)
    values = np.random.default_rng(3).normal(size=(7, 96)).astype(np.float32)
    number = gguf.GGMLQuantizationType[kind]
    blocks = gguf.quantize(values, number)
    path = gguf_files.write(tmp_path / "m.gguf", "llama", {}, {"a": (values, None), "b": (blocks, number)})
    found = read_gguf(path).tensors
    np.testing.assert_array_equal(found["a"].read(), values)
    np.testing.assert_array_equal(found["b"].read(), gguf.dequantize(blocks, number))


U32_3 = struct.pack("<I", 3)


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"GGUF", "cannot be read: it has 4 bytes, and a GGUF file at least 24"),
        (header(magic=b"GGML"), "cannot be read: it does not start with GGUF"),
        (header(version=1), "cannot be read: version 1 is not supported"),
        (
            header(version=3 << 24),
            "cannot be read: version 50331648 is not supported, written on a machine of",
        ),
        (b"PK\3\4" + bytes(40), "is a zip file"),
        (header(keys=1) + key("split.count", U32, U32_3), "cannot be read: it is one of 3 parts; join them"),
        (header(keys=2) + 2 * key("a", U32, U32_3), "cannot be read: the key a is repeated"),
        (header(tensors=2) + 2 * tensor("a", [1]) + bytes(64), "cannot be read: the tensor a is repeated"),
        (
            header(tensors=2) + tensor("a", [32], 16) + tensor("b", [32], 999) + bytes(256),
            "cannot be read: it has tensors of unsupported types (IQ2_XXS, number 999)",
        ),
    ],
)
def test_what_is_no_complete_gguf_is_refused(content, what, tmp_path):
    assert refusal(tmp_path / "m.gguf", content).startswith(f"m.gguf {what}")


def test_a_cut_file_is_named_wherever_it_is_cut(tmp_path):
    path, tensors = tmp_path / "m.gguf", {"t": (np.zeros((4, 64), np.float32), None)}
    content = gguf_files.write(path, "llama", {"a": "text", "b": ["x", "y"]}, tensors).read_bytes()
    end = len(content)
    assert refusal(path, content[:-100]) == (
        f"m.gguf cannot be read: it is truncated: the tensor t ends at byte {end:,} of {end - 100:,}."
    )
    for size in range(0, end - 1024, 7):
        refusal(path, content[:size])


HUGE = 2**63
ONE_KEY = header(keys=1) + text("a")
ONE_TENSOR = header(tensors=1) + text("a")
HOSTILE = {
    "keys": header(keys=HUGE),
    "tensors": header(tensors=HUGE),
    "many tensors": header(tensors=2**16) + bytes(36),
    "key": header(keys=1) + struct.pack("<Q", HUGE),
    "text": ONE_KEY + struct.pack("<IQ", STRING, 2**62),
    "texts": ONE_KEY + struct.pack("<IIQ", ARRAY, STRING, 2**21),
    "more texts": ONE_KEY + struct.pack("<IIQ", ARRAY, STRING, HUGE),
    "numbers": ONE_KEY + struct.pack("<IIQ", ARRAY, U64, HUGE),
    "lists of lists": ONE_KEY + struct.pack("<IIQ", ARRAY, ARRAY, 1),
    "type": ONE_KEY + struct.pack("<I", 77),
    "not UTF-8": header(keys=1) + struct.pack("<Q", 2) + b"\xff\xfe",
    "dimensions": ONE_TENSOR + struct.pack("<I", 2**31),
    "dimension": header(tensors=1) + tensor("a", [HUGE, HUGE, HUGE, HUGE]),
    "no dimension": header(tensors=1) + tensor("a", []),
    "dimension 0": header(tensors=1) + tensor("a", [0, HUGE]),
    "offset": header(tensors=1) + tensor("a", [1], offset=HUGE),
    "block": header(tensors=1) + tensor("a", [33], kind=8),
    "alignment": header(keys=1) + key("general.alignment", U32, struct.pack("<I", 0)),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_header_that_promises_too_much_takes_no_memory(name, tmp_path):
    tracemalloc.start()
    try:
        assert refusal(tmp_path / "m.gguf", HOSTILE[name] + bytes(64)).startswith("m.gguf cannot be read: ")
        assert tracemalloc.get_traced_memory()[1] < 4 * 2**20
    finally:
        tracemalloc.stop()


def test_a_header_longer_than_any_is_not_read_to_its_end(tmp_path, monkeypatch):
    monkeypatch.setattr(gguf_reading, "MAX_HEADER_BYTES", 1000)
    content = ONE_KEY + struct.pack("<IIQ", ARRAY, U32, 500) + bytes(2000)
    what = "m.gguf cannot be read: its header is damaged or truncated at byte 49."
    assert refusal(tmp_path / "m.gguf", content) == what


def model_refusal(path):
    return catch_problem(lambda: resolve(str(path)))


def test_a_gguf_of_another_architecture_is_named(tmp_path):
    path = gguf_files.write(tmp_path / "m.gguf", "mamba", {}, {})
    problem = model_refusal(path)
    assert (problem.code, problem.file) == ("TP039", str(path))
    assert problem.what == "m.gguf is not a supported model: its general.architecture is 'mamba'."
    assert problem.expected == "gpt2, llama, gemma, gemma2, qwen2, qwen3, smollm3, gemma3"
    bare = gguf_files.write(tmp_path / "bare.gguf", "qwen2", {"qwen2.block_count": 2}, {})
    assert "it lacks qwen2.embedding_length, qwen2.feed_forward_length, " in model_refusal(bare).what


@pytest.mark.parametrize(
    ("metadata", "tensors", "because"),
    [
        (
            {"llama.rope.scaling.type": "longrope"},
            {},
            "its context extension is 'longrope'; linear, yarn",
        ),
        ({"llama.rope.dimension_count": 4}, {}, "it rotates 4 of the 10 numbers of a head"),
        ({}, {"rope_freqs.weight": np.ones(5, np.float32) * 3}, "its rope_freqs.weight differs from Llama 3.1's"),
    ],
)
def test_rotary_positions_that_are_not_computed_are_named(metadata, tensors, because, tmp_path):
    path = gguf_files.from_folder(CASES / "llama", tmp_path / "m.gguf", metadata=metadata, tensors=tensors)
    assert model_refusal(path).what.startswith(f"m.gguf is not a supported model: {because}")


def converted(name, folder, path):
    """Write a model as the converter of llama.cpp does."""
    tensors = {"rope_freqs.weight": divisors()} if name == "llama-llama3" else {}
    return gguf_files.from_folder(folder, path, metadata=STATED.get(name), tensors=tensors)


@pytest.mark.parametrize("name", NAMES)
def test_a_converted_model_is_the_same_model(name, tmp_path):
    folder = folder_of(name, tmp_path / "folder")
    path = converted(name, folder, tmp_path / "m.gguf")
    theirs, ours = resolve(str(folder)), resolve(str(path))
    family = "llama" if theirs.spec.family == "mistral" else theirs.spec.family
    kept = {field: getattr(theirs.spec, field) for field in ("initializer_std", "scale_residual_init")}
    assert replace(ours.spec, **kept) == replace(theirs.spec, family=family)
    expected, got = params_of(theirs), params_of(ours)
    assert list(got) == list(expected)
    # Gemma's gains are kept with 1 added, which rounds them.
    tolerance = 2**-23 if name.startswith("gemma") else 0.0
    for param, value in expected.items():
        np.testing.assert_allclose(got[param], value, rtol=0, atol=tolerance if "norm" in param else 0, err_msg=param)


@pytest.mark.parametrize(("name", "form"), [*((name, "f16") for name in NAMES), ("llama", "q8_0"), ("gemma3", "q8_0")])
def test_a_model_is_written_as_the_converter_writes_it(name, form, tmp_path):
    folder = with_tokenizer(folder_of(name, tmp_path / "folder"))
    source = resolve(str(folder))
    export_gguf(tmp_path / "ours.gguf", params_of(source), source, form=form, end_token_id=1)
    ours, theirs = read_gguf(tmp_path / "ours.gguf"), read_gguf(converted(name, folder, tmp_path / "theirs.gguf"))
    assert set(ours.tensors) == set(theirs.tensors)
    for tensor, stored in theirs.tensors.items():
        value = stored.read()
        kind = "F32" if value.ndim == 1 or tensor.startswith("position") else "F16"
        if form == "q8_0" and kind == "F16" and value.shape[-1] % 32 == 0:
            kind = "Q8_0"
        assert (ours.tensors[tensor].dtype, ours.tensors[tensor].shape) == (kind, value.shape), tensor
        number = gguf.GGMLQuantizationType[kind]
        expected = gguf.dequantize(gguf.quantize(value, number), number)
        np.testing.assert_array_equal(ours.tensors[tensor].read(), expected, err_msg=tensor)
    about = {key: value for key, value in theirs.metadata.items() if not key.startswith("general")}
    assert {key: ours.metadata.get(key, value) for key, value in about.items()} == about
    again = resolve(str(tmp_path / "ours.gguf"))
    assert again.tokenizer()(TEXT).input_ids == source.tokenizer()(TEXT).input_ids
    assert again.tokenizer().chat_template == TEMPLATE
    assert ours.metadata["tokenizer.ggml.eot_token_id"] == 1
    assert ours.metadata["general.file_type"] == {"f16": 1, "q8_0": 7}[form]


def add_token(folder, **flags):
    """Add a token with flags to the tokenizer of a folder, with a row of its own in the model's table."""
    file = folder / "tokenizer.json"
    tokenizer = json.loads(file.read_text())
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False} | flags
    tokenizer["added_tokens"].append({"id": 90, "content": "<think>", **flags})
    file.write_text(json.dumps(tokenizer))
    return folder


def flag_token(flag):
    return lambda folder: add_token(with_tokenizer(folder_of("llama", folder)), **{flag: True})


def without_digits(folder):
    return with_tokenizer(folder_of("llama", folder), digits=False)


@pytest.mark.parametrize(
    ("make", "code", "what"),
    [
        (lambda _: CASES / "mistral", "TP790", "llama cannot express this model: layers.0.window 6 would become None"),
        (lambda _: CASES / "gemma2", "TP790", "query_scale 0.22360679774997896 would become 0.3535533905932738"),
        (lambda _: CASES / "llama-llama3", "TP790", "its rope_freqs.weight differs from Llama 3.1's."),
        *((flag_token(flag), "TP099", f"has the flag {flag}") for flag in ("lstrip", "rstrip", "single_word")),
        (without_digits, "TP099", "its pre-tokenizer is not one of gpt-2, smollm, "),
    ],
)
def test_what_llama_cpp_would_compute_or_tokenize_differently_is_refused(make, code, what, tmp_path):
    source, path = resolve(str(make(tmp_path / "folder"))), tmp_path / "m.gguf"
    problem = catch_problem(lambda: export_gguf(path, params_of(source), source, form="f16"))
    assert (problem.code, problem.next) == (code, rule(code).fix)
    assert what in problem.what
    assert not [*tmp_path.glob("*.gguf*"), *tmp_path.glob(".*.tmp")]


def test_added_tokens_are_compared_in_texts_with_them(tmp_path):
    folder = add_token(with_tokenizer(folder_of("llama", tmp_path / "folder")))
    source = resolve(str(folder))
    texts = tokenizer_probes(source.tokenizer())
    assert all(any(token in text for text in texts) for token in ("<|end|>", "<|a|>", "<think>"))
    export_gguf(tmp_path / "whole.gguf", params_of(source), source, form="f16")
    again = resolve(str(tmp_path / "whole.gguf")).tokenizer()
    assert [again(text).input_ids for text in texts] == [source.tokenizer()(text).input_ids for text in texts]


def test_an_exported_file_is_exported_again_as_a_folder_with_all_chat_templates(tmp_path):
    folder = with_tokenizer(folder_of("gemma3", tmp_path / "folder"))
    both = {"default": TEMPLATE, "tool_use": "{{ 'TOOLS ' }}"}
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "tool_use.jinja").write_text(both["tool_use"])
    source = resolve(str(folder))
    export_gguf(tmp_path / "m.gguf", params_of(source), source, form="f16")
    stated = read_gguf(tmp_path / "m.gguf").metadata
    assert stated["tokenizer.chat_template"] == TEMPLATE
    assert stated["tokenizer.chat_template.tool_use"] == both["tool_use"]
    assert stated["tokenizer.chat_templates"] == ["tool_use"]
    file = resolve(str(tmp_path / "m.gguf"))
    export(tmp_path / "again", params_of(file), file)
    again = resolve(str(tmp_path / "again"))
    assert file.tokenizer().chat_template == again.tokenizer().chat_template == both
    assert again.tokenizer().get_vocab() == file.tokenizer().get_vocab()
    assert again.spec == file.spec
    assert json.loads((tmp_path / "again" / "config.json").read_text())["architectures"] == ["Gemma3ForCausalLM"]
    for name, value in params_of(file).items():
        np.testing.assert_array_equal(params_of(again)[name], value, err_msg=name)


def test_numbers_beyond_f16_are_named():
    large = StoredTensor(shape=(1, 2), dtype="F16", read=lambda: np.array([[1.0, 7e4]], np.float32))
    problem = catch_problem(lambda: encode_blocks("a", large))
    assert problem.what == "The tensor a contains 70,000; the largest number of F16 is 65,504."
    assert tensor_type("a", (4, 48), "q8_0") == "F16"


# Tokenizers


def built(folder, metadata):
    return build_tokenizer(read_gguf(gguf_files.write(folder / "t.gguf", "llama", metadata, {})))


def test_splitting_of_qwen2_and_llama3_is_that_of_transformers():
    assert QWEN2 == PRETOKENIZE_REGEX
    words = {pre: [word for word, _ in SPLITTINGS[pre].splitter.pre_tokenize_str("ab 12345 I'M")] for pre in SPLITTINGS}
    assert words["llama-bpe"] == ["ab", "Ġ", "123", "45", "ĠI", "'M"]
    assert words["qwen2"] == words["tekken"] == ["ab", "Ġ", "1", "2", "3", "4", "5", "ĠI", "'M"]
    assert words["gpt-2"] == ["ab", "Ġ12345", "ĠI", "'", "M"]
    assert words["smollm"] == ["ab", "Ġ", "1", "2", "3", "4", "5", "ĠI", "'", "M"]


BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
PIECES = {
    "tokenizer.ggml.model": "llama",
    "tokenizer.ggml.tokens": ["<unk>", "<s>", "</s>", *BYTES, *["▁", "a", "b", "c", "ab", "▁a", "abc", "▁ab", "bc"]],
    "tokenizer.ggml.scores": [0.0] * 259 + [-1.0, -2.0, -3.0, -4.0, -5.0, -6.0, -7.0, -8.0, -9.0],
    "tokenizer.ggml.token_type": [2, 3, 3] + [6] * 256 + [1] * 9,
    "tokenizer.ggml.bos_token_id": 1,
    "tokenizer.ggml.eos_token_id": 2,
    "tokenizer.ggml.unknown_token_id": 0,
}


def test_pieces_are_merged_by_their_scores(tmp_path):
    """`▁abc`: first a and b, whose piece has the highest score, then ▁ab no more but abc before it; worked by hand."""
    got = built(tmp_path, PIECES)
    assert got.convert_ids_to_tokens(got("abc").input_ids) == ["<s>", "\u2581", "abc"]
    assert got.convert_ids_to_tokens(got("cé").input_ids) == ["<s>", "\u2581", "c", "<0xC3>", "<0xA9>"]
    assert got.decode(got("abc cé  b").input_ids, skip_special_tokens=True) == "abc cé  b"
    plain = built(tmp_path, PIECES | {"tokenizer.ggml.add_space_prefix": False, "tokenizer.ggml.add_eos_token": True})
    assert plain.convert_ids_to_tokens(plain("ab").input_ids) == ["<s>", "ab", "</s>"]


BYTE_LEVEL = {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "smollm"}


@pytest.mark.parametrize(
    ("changed", "because"),
    [
        ({"tokenizer.ggml.tokens": []}, "tokenizer.ggml.tokens is missing"),
        ({"tokenizer.ggml.model": "bert"}, "tokenizer.ggml.model 'bert' is not supported, only gpt2 and llama"),
        ({"tokenizer.ggml.scores": [0.5]}, "it has 268 tokens and 1 scores"),
        ({"tokenizer.ggml.bos_token_id": 268}, "tokenizer.ggml.bos_token_id is 268, but there are 268 tokens"),
        (
            BYTE_LEVEL | {"tokenizer.ggml.pre": "falcon", "tokenizer.ggml.merges": ["a b"]},
            f"tokenizer.ggml.pre 'falcon' is not supported, only {', '.join(SPLITTINGS)}",
        ),
        (BYTE_LEVEL, "tokenizer.ggml.merges is missing"),
        (BYTE_LEVEL | {"tokenizer.ggml.merges": ["a b", "a d"]}, "the merge 'a d' contains unknown tokens"),
        ({"tokenizer.ggml.tokens": ["a"] * 268}, "the token 'a' is repeated"),
    ],
)
def test_a_tokenizer_that_cannot_be_built_is_named(changed, because, tmp_path):
    metadata = {key: value for key, value in (PIECES | changed).items() if value != []}
    with pytest.raises(GgufError, match=f"^{re.escape(because)}$"):
        built(tmp_path, metadata)


def test_a_model_without_tokenizer_is_refused_with_a_way(tmp_path):
    source = resolve(str(gguf_files.from_folder(CASES / "llama", tmp_path / "m.gguf")))
    problem = catch_problem(source.tokenizer)
    assert problem.code == "TP046"
    assert problem.what.endswith("cannot be built: tokenizer.ggml.tokens is missing.")
    assert not source.has_tokenizer
