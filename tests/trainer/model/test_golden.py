"""Models that transformers made on torch: the same logits, the same greedy outputs, the same files again.

A new case is a new folder under tests/cases/models (made by the `make.py` there).
"""

import json

import numpy as np
import pytest
from golden import CASES, assert_equals_transformers, expected_of, load_folder
from safetensors import safe_open

from trainer.generate.decode import generate
from trainer.model.export import export
from trainer.model.families import FAMILIES

CONFIGS = {path.parent.name: json.loads(path.read_text()) for path in sorted(CASES.glob("*/config.json"))}
QUANTISED = [name for name, config in CONFIGS.items() if "quantization_config" in config]
PLAIN = ("gpt2", "llama", "mistral", "gemma", "gemma2", "gemma3", "qwen2", "qwen3", "smollm3")


def stored(folder) -> dict[str, tuple[str, list[int], bytes]]:
    tensors = {}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="numpy") as file:
            for name in file.keys():  # noqa: SIM118 - not a dictionary
                value = file.get_tensor(name)
                tensors[name] = (str(value.dtype), list(value.shape), value.tobytes())
    return tensors


def test_there_is_a_case_of_every_family():
    # A checkpoint with images is that of its text model with other names: test_load.py.
    assert {config["model_type"] for config in CONFIGS.values()} == set(FAMILIES) - {"gemma3"}


@pytest.mark.slow(but=PLAIN)
@pytest.mark.parametrize("name", CONFIGS)
def test_logits_loss_and_gradient_are_those_of_transformers(name):
    remat = ("layer", "dots", "none")[list(CONFIGS).index(name) % 3]
    _, graphdef, params = load_folder(CASES / name, remat=remat, deterministic=True)
    assert_equals_transformers(name, graphdef, params)


@pytest.mark.slow(but=("llama",))
@pytest.mark.parametrize("name", CONFIGS)
def test_greedy_outputs_are_those_of_transformers(name):
    _, graphdef, params = load_folder(CASES / name)
    expected, _ = expected_of(name)
    limits = {key: expected[key] for key in ("max_new_tokens", "stop_token_id")}
    found = generate(graphdef, params, expected["prompts"], **limits, batch_size=3)
    assert [list(one.tokens) for one in found] == expected["completions"]


@pytest.mark.slow(but=PLAIN)
@pytest.mark.parametrize("name", [name for name in CONFIGS if name not in QUANTISED])
def test_exported_tensors_are_the_same_bytes(name, tmp_path):
    source, _, params = load_folder(CASES / name, params_dtype=CONFIGS[name]["dtype"])
    export(tmp_path / "whole", params, source)
    export(tmp_path / "split", params, source, shard_bytes=10_000)
    assert len(list((tmp_path / "split").glob("model-*.safetensors"))) > 1
    for folder in (tmp_path / "whole", tmp_path / "split"):
        assert stored(folder) == stored(CASES / name)
        _, _, again = load_folder(folder, params_dtype=CONFIGS[name]["dtype"])
        assert all(np.array_equal(params[key], again[key]) for key in params)


@pytest.mark.parametrize("name", QUANTISED)
def test_a_quantised_model_is_exported_without_quantisation(name, tmp_path):
    source, _, params = load_folder(CASES / name)
    export(tmp_path / "plain", params, source)
    assert "quantization_config" not in json.loads((tmp_path / "plain" / "config.json").read_text())
    _, _, again = load_folder(tmp_path / "plain")
    assert all(np.array_equal(params[key], again[key]) for key in params)
