"""Models that transformers made on torch: the same logits, the same greedy outputs, the same files again.

A new case is a new folder under tests/cases/models (made by the `make.py` there).
"""

import json
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors import safe_open

from trainer.generate.decode import generate
from trainer.model.decoder import abstract, bind, flatten
from trainer.model.export import export, join_tensor
from trainer.model.families import FAMILIES
from trainer.model.load import load_params
from trainer.model.source import resolve
from trainer.objectives.cross_entropy import chunked_cross_entropy, next_token_targets

CASES = Path(__file__).parents[2] / "cases" / "models"
NAMES = sorted(path.parent.name for path in CASES.glob("*/config.json"))
QUANTISED = [name for name in NAMES if "quantization_config" in (CASES / name / "config.json").read_text()]


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


def test_there_is_a_case_of_every_family():
    families = {json.loads((CASES / name / "config.json").read_text())["model_type"] for name in NAMES}
    # A checkpoint with images is that of its text model with other names: test_load.py.
    assert families == set(FAMILIES) - {"gemma3"}


@partial(jax.jit, static_argnums=0)
def loss_and_logits(graphdef, params, tokens):
    """Return gradient and logits of the mean loss; remat is on, which changes none of them."""

    def loss_of(params):
        decoder = bind(graphdef, params)
        hidden = decoder.hidden(tokens)
        targets, mask = next_token_targets(tokens, jnp.ones(tokens.shape, jnp.bool_))
        total = chunked_cross_entropy(hidden, targets, mask, decoder.logits, chunk_positions=None)
        return total / jnp.sum(mask).astype(jnp.float32), decoder.logits(hidden)

    return jax.value_and_grad(loss_of, has_aux=True)(params)


@pytest.mark.slow(but=("gpt2", "llama", "mistral", "gemma", "gemma2", "gemma3", "qwen2", "qwen3", "smollm3"))
@pytest.mark.parametrize("name", NAMES)
def test_logits_loss_and_gradient_are_those_of_transformers(name):
    source, graphdef, params = loaded(CASES / name, remat="layer")
    arrays = np.load(CASES / name / "expected.npz")
    expected = json.loads((CASES / name / "expected.json").read_text())
    (loss, got), gradient = loss_and_logits(graphdef, params, jnp.asarray(arrays["tokens"]))
    largest = np.abs(arrays["logits"]).max()
    # Measured: at most 2.4e-6.
    np.testing.assert_allclose(got, arrays["logits"], rtol=0, atol=1e-5 * largest)
    assert float(loss) == pytest.approx(expected["loss"], rel=1e-6)
    for link in source.family.links(source.spec):
        norm, product = expected["gradients"][link.tensor]
        flat = join_tensor(link, gradient, "float32").astype(np.float64).ravel()
        close = 1e-4 * norm + 1e-6
        assert np.linalg.norm(flat) == pytest.approx(norm, abs=close), link.tensor
        assert flat @ np.cos(np.arange(len(flat))) == pytest.approx(product, abs=close), link.tensor


@pytest.mark.slow(but=("llama",))
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


@pytest.mark.slow(but=("gpt2", "llama", "mistral", "gemma", "gemma2", "gemma3", "qwen2", "qwen3", "smollm3"))
@pytest.mark.parametrize("name", [name for name in NAMES if name not in QUANTISED])
def test_exported_tensors_are_the_same_bytes(name, tmp_path):
    dtype = json.loads((CASES / name / "config.json").read_text())["dtype"]
    source, _, params = loaded(CASES / name, dtype)
    export(tmp_path / "whole", params, source)
    export(tmp_path / "split", params, source, shard_bytes=10_000)
    assert stored(tmp_path / "whole") == stored(CASES / name)
    assert stored(tmp_path / "split") == stored(CASES / name)
    assert len(list((tmp_path / "split").glob("model-*.safetensors"))) > 1
    for folder in ("whole", "split"):
        _, _, again = loaded(tmp_path / folder, dtype)
        assert all(np.array_equal(params[key], again[key]) for key in params)


@pytest.mark.parametrize("name", QUANTISED)
def test_what_is_exported_of_a_quantised_model_is_plain_and_the_same(name, tmp_path):
    source, _, params = loaded(CASES / name)
    export(tmp_path / "plain", params, source)
    assert "quantization_config" not in json.loads((tmp_path / "plain" / "config.json").read_text())
    _, _, again = loaded(tmp_path / "plain")
    assert all(np.array_equal(params[key], again[key]) for key in params)
