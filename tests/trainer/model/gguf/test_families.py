"""A model written as llama.cpp's converter writes it is the model of its Hugging Face folder, spec and parameters.

The folders are those whose logits, losses and greedy texts transformers computed (test_golden.py).
"""

import json
from dataclasses import replace

import gguf_files
import numpy as np
import pytest
from gguf_cases import NAMES, STATED, divisors, folder_of, params_of

from trainer.model.export import export
from trainer.model.source import resolve


@pytest.mark.parametrize("name", NAMES)
def test_a_converted_model_is_the_same_model(name, tmp_path):
    folder = folder_of(name, tmp_path / "folder")
    tensors = {"rope_freqs.weight": divisors()} if name == "llama-llama3" else {}
    path = gguf_files.from_folder(folder, tmp_path / "m.gguf", metadata=STATED.get(name), tensors=tensors)
    theirs, ours = resolve(str(folder)), resolve(str(path))
    family = "llama" if theirs.spec.family == "mistral" else theirs.spec.family
    kept = {field: getattr(theirs.spec, field) for field in ("initializer_std", "scale_residual_init")}
    assert replace(ours.spec, **kept) == replace(theirs.spec, family=family)
    expected, got = params_of(theirs), params_of(ours)
    assert list(got) == list(expected)
    # Gemma's gains are kept with 1 added, which rounds them.
    tolerance = 2**-23 if name.startswith("gemma") else 0.0
    for param, value in expected.items():
        is_norm = "norm" in param
        np.testing.assert_allclose(got[param], value, rtol=0, atol=tolerance if is_norm else 0, err_msg=param)


@pytest.mark.slow
def test_an_export_of_it_is_a_folder_that_reads_the_same(tmp_path):
    folder = folder_of("gemma3", tmp_path / "folder")
    source = resolve(str(gguf_files.from_folder(folder, tmp_path / "m.gguf", metadata=TOKENS)))
    export(tmp_path / "again", params_of(source), source)
    again = resolve(str(tmp_path / "again"))
    assert again.spec == source.spec
    assert again.tokenizer().get_vocab() == source.tokenizer().get_vocab()
    assert json.loads((tmp_path / "again" / "config.json").read_text())["architectures"] == ["Gemma3ForCausalLM"]
    for name, value in params_of(source).items():
        np.testing.assert_array_equal(params_of(again)[name], value, err_msg=name)


TOKENS = {
    "tokenizer.ggml.model": "llama",
    "tokenizer.ggml.tokens": ["<unk>", "<s>", "</s>", "\u2581", "a", "b", "ab"],
    "tokenizer.ggml.scores": [0.0, 0.0, 0.0, -1.0, -2.0, -3.0, -4.0],
    "tokenizer.ggml.token_type": [2, 3, 3, 1, 1, 1, 1],
    "tokenizer.ggml.bos_token_id": 1,
    "tokenizer.ggml.eos_token_id": 2,
    "tokenizer.ggml.unknown_token_id": 0,
}
