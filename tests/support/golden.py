"""The models of tests/cases/models, which transformers made, and what it computed with them."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from trainer.model.decoder import Decoder, abstract, bind, flatten
from trainer.model.export import join_tensor
from trainer.model.load import load_params
from trainer.model.source import ModelSource, resolve
from trainer.model.stacks import Params, unstack_layers
from trainer.objectives.cross_entropy import next_token_targets, sum_chunks, summed_cross_entropy

CASES = Path(__file__).parents[1] / "cases" / "models"
FLOAT32 = {"params_dtype": "float32", "compute_dtype": "float32", "remat": "none"}


def shapes_of(source: ModelSource, **choices: Any) -> Params:
    """Return the shapes of a model's parameters, in float32 unless chosen otherwise."""
    return flatten(abstract(source.spec, **FLOAT32 | choices))[1]


def load_folder(folder: Path, **choices: Any) -> tuple[ModelSource, nnx.GraphDef[Decoder], Params]:
    """Return source, structure and parameters of the model in a folder, in float32 unless chosen otherwise."""
    source = resolve(str(folder))
    graphdef, shapes = flatten(abstract(source.spec, **FLOAT32 | choices))
    return source, graphdef, load_params(source, shapes)


def expected_of(name: str) -> tuple[dict[str, Any], Any]:
    """Return what transformers computed: numbers and arrays."""
    return json.loads((CASES / name / "expected.json").read_text()), np.load(CASES / name / "expected.npz")


@partial(jax.jit, static_argnums=0)
def loss_and_logits(graphdef: nnx.GraphDef[Decoder], params: Params, tokens: jax.Array) -> Any:
    """Return the mean loss with logits, and its gradient."""

    def loss_of(params: Params) -> tuple[jax.Array, jax.Array]:
        decoder = bind(graphdef, params)
        hidden = decoder.hidden(tokens)
        targets, mask = next_token_targets(tokens, jnp.ones(tokens.shape, jnp.bool_))
        total = sum_chunks(summed_cross_entropy, hidden, targets, mask, decoder.logits, None)
        return total / jnp.sum(mask).astype(jnp.float32), decoder.logits(hidden)

    return jax.value_and_grad(loss_of, has_aux=True)(params)


def assert_equals_transformers(name: str, graphdef: nnx.GraphDef[Decoder], params: Params) -> None:
    """Compare logits, loss and the gradient of every tensor; of logits the difference was at most 2.4e-6."""
    source, (expected, arrays) = resolve(str(CASES / name)), expected_of(name)
    (loss, logits), gradient = loss_and_logits(graphdef, params, jnp.asarray(arrays["tokens"]))
    np.testing.assert_allclose(logits, arrays["logits"], rtol=0, atol=1e-5 * np.abs(arrays["logits"]).max())
    assert float(loss) == pytest.approx(expected["loss"], rel=1e-6)
    single = unstack_layers(gradient)
    for link in source.family.links(source.spec):
        norm, product = expected["gradients"][link.tensor]
        flat = join_tensor(link, single, "float32").astype(np.float64).ravel()
        close = 1e-4 * norm + 1e-6
        assert np.linalg.norm(flat) == pytest.approx(norm, abs=close), link.tensor
        assert flat @ np.cos(np.arange(len(flat))) == pytest.approx(product, abs=close), link.tensor
