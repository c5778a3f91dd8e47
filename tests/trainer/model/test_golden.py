"""Models that transformers made on torch: the same logits, the same greedy outputs, the same files again.

A new case is a new folder under tests/cases/models (made by the `make.py` there).
"""

import json
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from safetensors import safe_open
from tiny_models import logits

from trainer.generate.decode import generate
from trainer.model.build import abstract
from trainer.model.files.export import export
from trainer.model.files.loading import load_params
from trainer.model.files.source import resolve
from trainer.model.params import flatten

CASES = Path(__file__).parents[2] / "cases" / "models"
NAMES = sorted(path.parent.name for path in CASES.glob("*/config.json"))


def loaded(folder: Path, dtype=jnp.float32, remat="none"):
    source = resolve(str(folder))
    graphdef, wanted = flatten(abstract(source.spec, params_dtype=dtype, compute_dtype=dtype, remat=remat))
    return source, graphdef, load_params(source, wanted)


def stored(folder: Path) -> dict[str, tuple[str, list[int], bytes]]:
    tensors = {}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="numpy") as file:
            for name in file.keys():  # noqa: SIM118 - not a dictionary
                value = file.get_tensor(name)
                tensors[name] = (str(value.dtype), list(value.shape), value.tobytes())
    return tensors


def test_there_are_cases_of_both_families():
    assert NAMES == ["gemma", "gemma-grouped", "gpt2", "gpt2-untied"]


@pytest.mark.parametrize("remat", ["none", "layer"])
@pytest.mark.parametrize("name", NAMES)
def test_logits_are_those_of_transformers(name, remat):
    _, graphdef, params = loaded(CASES / name, remat=remat)
    expected = np.load(CASES / name / "expected.npz")
    got = logits(graphdef, params, expected["tokens"])
    # Measured: at most 6.7e-6 on logits of up to 3.9.
    np.testing.assert_allclose(got, expected["logits"], rtol=0, atol=2e-5)


@pytest.mark.parametrize("name", NAMES)
def test_greedy_outputs_are_those_of_transformers(name):
    _, graphdef, params = loaded(CASES / name)
    expected = json.loads((CASES / name / "expected.json").read_text())
    got = generate(
        graphdef,
        params,
        expected["prompts"],
        max_new_tokens=expected["max_new_tokens"],
        stop_token_id=expected["stop_token_id"],
        batch_size=3,
    )
    assert [list(one.tokens) for one in got] == expected["completions"]


@pytest.mark.parametrize("name", NAMES)
def test_exported_tensors_are_the_same_bytes(name, tmp_path):
    dtype = jnp.bfloat16 if name == "gemma-grouped" else jnp.float32
    source, _, params = loaded(CASES / name, dtype)
    export(tmp_path / "whole", params, source)
    export(tmp_path / "split", params, source, shard_bytes=20_000)
    assert stored(tmp_path / "whole") == stored(CASES / name)
    assert stored(tmp_path / "split") == stored(CASES / name)
    assert len(list((tmp_path / "split").glob("model-*.safetensors"))) > 1
    for folder in ("whole", "split"):
        _, _, again = loaded(tmp_path / folder, dtype)
        assert all(np.array_equal(params[key], again[key]) for key in params)
