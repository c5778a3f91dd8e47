"""A model written as llama.cpp's converter writes it is the model of its Hugging Face folder, spec and parameters.

The folders are those whose logits, losses and greedy texts transformers computed (test_golden.py). Where llama.cpp's
architecture cannot state what a case has, its config.json is changed to what it can.
"""

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import gguf_files
import jax.numpy as jnp
import numpy as np
import pytest

from trainer.model.build import abstract
from trainer.model.files.export import export
from trainer.model.files.loading import load_params
from trainer.model.files.source import resolve
from trainer.model.params import flatten

CASES = Path(__file__).parents[3] / "cases" / "models"
CHANGED = {
    "gemma2": {"query_pre_attn_scalar": 8},
    "gemma3": {"query_pre_attn_scalar": 8, "rope_scaling": None},
    "llama-llama3": {"hidden_act": "silu", "rope_theta": 500_000.0},
}
STATED = {
    "llama-linear": {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 2.5},
    "llama-yarn": {
        "llama.rope.scaling.type": "yarn",
        "llama.rope.scaling.factor": 4.0,
        "llama.rope.scaling.original_context_length": 12,
    },
}
NAMES = (
    *("gpt2", "llama", "llama-linear", "llama-yarn", "llama-llama3", "mistral-no-window", "smollm3"),
    *("gemma", "gemma2", "gemma3", "qwen2-plain", "qwen3"),
)


def folder_of(name, folder):
    """Return a case's folder, with its config.json changed where that is needed."""
    shutil.copytree(CASES / name, folder)
    path = folder / "config.json"
    config = json.loads(path.read_text()) | CHANGED.get(name, {})
    if name == "llama-llama3":
        config["rope_scaling"]["original_max_position_embeddings"] = 8192
    path.write_text(json.dumps(config))
    return folder


def divisors():
    """Return the divisors of Llama 3.1 for heads of 6, as the converter computes them."""
    found = []
    for place in range(0, 6, 2):
        wavelength = 2 * math.pi * 500_000.0 ** (place / 6)
        if wavelength < 8192 / 4:
            found.append(1.0)
        elif wavelength > 8192:
            found.append(8.0)
        else:
            smooth = (8192 / wavelength - 1) / 3
            found.append(1 / ((1 - smooth) / 8.0 + smooth))
    return np.array(found, np.float32)


def params_of(source):
    _, wanted = flatten(abstract(source.spec, params_dtype=jnp.float32, compute_dtype=jnp.float32, remat="none"))
    return load_params(source, wanted)


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
