"""The header of a GGUF file: every type of tensor, and files that are cut, of another kind, or made to do harm."""

import struct
import tracemalloc

import gguf
import gguf_files
import numpy as np
import pytest

from schemas.problems import ProblemError
from trainer.model.gguf import KINDS, read_gguf

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
    with pytest.raises(ProblemError) as raised:
        read_gguf(path)
    [problem] = raised.value.problems
    assert (problem.code, problem.file, raised.value.exit_code) == ("TP038", str(path), 2)
    return problem.what


@pytest.mark.parametrize("kind", QUANTISABLE)
def test_a_tensor_is_read_as_what_its_blocks_stand_for(kind, tmp_path):
    values = np.random.default_rng(3).normal(size=(6, 64)).astype(np.float32)
    number = gguf.GGMLQuantizationType[kind]
    blocks = gguf.quantize(values, number)
    path = gguf_files.write(tmp_path / "m.gguf", "llama", {}, {"a": (values, None), "b": (blocks, number)})
    found = read_gguf(path).tensors
    np.testing.assert_array_equal(found["a"].read(), values)
    got = found["b"].read()
    assert got.shape == (6, 64)
    largest = np.abs(values).max()
    step = {"F32": 0, "F16": 2**-11, "BF16": 2**-8, "Q8_0": 1 / 254}.get(kind, 1 / (30 if "5" in kind else 14))
    assert np.abs(got - values).max() <= step * largest * 1.01


def test_blocks_of_256_worked_by_hand(tmp_path):
    """A Q4_K block: scale 0.5, minimum 0.25; scales of sub-blocks 1 to 4, minima 2, then all codes 9, low and high."""
    scales = bytes([1, 2, 3, 4, 2, 2, 2, 2, 0x21, 0x21, 0x21, 0x21])  # the last four: low half scale 1, high half min 2
    q4_k = np.float16(0.5).tobytes() + np.float16(0.25).tobytes() + scales + bytes([0x99]) * 128
    expected = np.repeat([0.5 * s * 9 - 0.25 * 2 for s in (1, 2, 3, 4, 1, 1, 1, 1)], 32)
    # A Q6_K block: low halves 5, high bits 2, hence 5 + 32 - 32; scales of 16 numbers each -8 to 7; whole scale 2.
    q6_k = bytes([0x55]) * 128 + bytes([0xAA]) * 64 + np.arange(-8, 8, dtype=np.int8).tobytes()
    q6_k += np.float16(2.0).tobytes()
    tensors = {
        name: (np.frombuffer(block, np.uint8).reshape(1, -1), gguf.GGMLQuantizationType[name])
        for name, block in (("Q4_K", q4_k), ("Q6_K", q6_k))
    }
    found = read_gguf(gguf_files.write(tmp_path / "m.gguf", "llama", {}, tensors)).tensors
    np.testing.assert_array_equal(found["Q4_K"].read()[0], expected.astype(np.float32))
    np.testing.assert_array_equal(found["Q6_K"].read()[0], np.repeat(np.arange(-8, 8) * 2.0 * 5, 16).astype(np.float32))


def test_sizes_of_blocks_are_the_formats():
    for number, (name, elements, size) in KINDS.items():
        assert gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]] == (elements, size)
        assert gguf.GGMLQuantizationType[name].value == number


def test_a_large_tensor_is_made_float32_part_by_part(tmp_path, monkeypatch):
    monkeypatch.setattr("trainer.model.gguf.CHUNK", 200)
    values = np.random.default_rng(5).normal(size=(7, 96)).astype(np.float32)
    number = gguf.GGMLQuantizationType.Q8_0
    path = gguf_files.write(tmp_path / "m.gguf", "llama", {}, {"a": (gguf.quantize(values, number), number)})
    expected = gguf.dequantize(gguf.quantize(values, number), number)
    np.testing.assert_array_equal(read_gguf(path).tensors["a"].read(), expected)


def test_values_of_every_type_are_read(tmp_path):
    metadata = {"a": 7, "b": 0.1, "c": "text", "d": True, "e": ["x", "y"], "f": [1, 2, 3]}
    found = read_gguf(gguf_files.write(tmp_path / "m.gguf", "llama", metadata, {})).metadata
    assert {name: found[name] for name in "abcde"} == {name: metadata[name] for name in "abcde"}
    assert found["f"].tolist() == [1, 2, 3]
    assert found["general.architecture"] == "llama"


def test_what_is_no_whole_gguf_is_named(tmp_path):
    path = tmp_path / "m.gguf"
    assert refusal(path, b"GGUF") == "m.gguf cannot be read: it has 4 bytes, and a GGUF file begins with 24."
    what = "m.gguf is a zip file, an archive or a spreadsheet or a PyTorch pickle."
    assert refusal(path, b"PK\3\4" + bytes(40)) == what
    assert refusal(path, header(version=1)) == "m.gguf cannot be read: its version is 1, and 2 and 3 are read."
    turned = b"GGUF" + struct.pack(">IQQ", 3, 0, 0)
    assert refusal(path, turned) == (
        "m.gguf cannot be read: its version is 50331648, and 2 and 3 are read; it was written for a machine of the "
        "other byte order."
    )
    parts = header(keys=1) + key("split.count", U32, struct.pack("<I", 3))
    assert refusal(path, parts) == (
        "m.gguf cannot be read: it is one of 3 parts of a model; join them with llama.cpp's `llama-gguf-split --merge`."
    )
    twice = header(keys=2) + 2 * key("a", U32, struct.pack("<I", 3))
    assert refusal(path, twice) == "m.gguf cannot be read: the key a stands in it twice."
    both = header(tensors=2) + tensor("a", [1]) + tensor("a", [1]) + bytes(64)
    assert refusal(path, both) == "m.gguf cannot be read: the tensor a stands in it twice."
    strange = header(tensors=3) + tensor("a", [32], 16) + tensor("b", [32], 999) + tensor("c", [32], 16) + bytes(256)
    assert refusal(path, strange) == (
        "m.gguf cannot be read: 3 tensors are of type IQ2_XXS, number 999, and F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, "
        "Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K are read."
    )


def test_a_cut_file_is_named_wherever_it_is_cut(tmp_path):
    values = np.zeros((4, 64), np.float32)
    whole = gguf_files.write(tmp_path / "whole.gguf", "llama", {"a": "text", "b": ["x", "y"]}, {"t": (values, None)})
    content = whole.read_bytes()
    path = tmp_path / "m.gguf"
    end = len(content)
    assert refusal(path, content[:-100]) == (
        f"m.gguf cannot be read: it is cut: the tensor t ends at byte {end:,}, and the file has {end - 100:,}."
    )
    for size in range(0, end - 1024, 7):
        refusal(path, content[:size])


HUGE = 2**63
HOSTILE = {
    "keys": header(keys=HUGE),
    "tensors": header(tensors=HUGE),
    "many tensors": header(tensors=2**16) + bytes(100),
    "key": header(keys=1) + struct.pack("<Q", HUGE) + bytes(64),
    "text": header(keys=1) + text("a") + struct.pack("<IQ", STRING, 2**62) + bytes(64),
    "texts": header(keys=1) + text("a") + struct.pack("<IIQ", ARRAY, STRING, 2**21) + bytes(64),
    "more texts": header(keys=1) + text("a") + struct.pack("<IIQ", ARRAY, STRING, HUGE) + bytes(64),
    "numbers": header(keys=1) + text("a") + struct.pack("<IIQ", ARRAY, U64, HUGE) + bytes(64),
    "lists of lists": header(keys=1) + text("a") + struct.pack("<IIQ", ARRAY, ARRAY, 1) + bytes(64),
    "type": header(keys=1) + text("a") + struct.pack("<I", 77) + bytes(64),
    "not UTF-8": header(keys=1) + struct.pack("<Q", 2) + b"\xff\xfe" + bytes(64),
    "dimensions": header(tensors=1) + text("a") + struct.pack("<I", 2**31) + bytes(64),
    "dimension": header(tensors=1) + tensor("a", [HUGE, HUGE, HUGE, HUGE]) + bytes(64),
    "no dimension": header(tensors=1) + tensor("a", []) + bytes(64),
    "dimension 0": header(tensors=1) + tensor("a", [0, HUGE]) + bytes(64),
    "offset": header(tensors=1) + tensor("a", [1], offset=HUGE) + bytes(64),
    "block": header(tensors=1) + tensor("a", [33], kind=8) + bytes(64),
    "alignment": header(keys=1, tensors=0) + key("general.alignment", U32, struct.pack("<I", 0)) + bytes(64),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_header_that_promises_too_much_takes_no_memory(name, tmp_path):
    tracemalloc.start()
    try:
        assert refusal(tmp_path / "m.gguf", HOSTILE[name]).startswith("m.gguf cannot be read: ")
        assert tracemalloc.get_traced_memory()[1] < 4 * 2**20
    finally:
        tracemalloc.stop()


def test_a_header_longer_than_any_is_not_read_to_its_end(tmp_path, monkeypatch):
    monkeypatch.setattr("trainer.model.gguf.MAX_HEADER_BYTES", 1000)
    content = header(keys=1) + text("a") + struct.pack("<IIQ", ARRAY, U32, 500) + bytes(2000)
    assert refusal(tmp_path / "m.gguf", content) == (
        "m.gguf cannot be read: the list a of 500 numbers at byte 49 needs 2,000 bytes, and 951 remain."
    )
