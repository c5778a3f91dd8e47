"""Layers take turns on the way back: which arrays pass a barrier together, and for whom there is none."""

import re

import jax
import jax.export
import jax.numpy as jnp
import pytest
from tiny_models import GEMMA

from trainer.model.decoder import abstract, bind, flatten
from trainer.model.families import spec_from_config
from trainer.model.lora import Lora


def barriers(platform, *, params=jnp.bfloat16, remat="layer", adapters=None, quantised=None):
    """Return the operands of each barrier of a model's gradient, as a platform's compiler is given it."""
    spec = spec_from_config(GEMMA)
    chosen = {"params_dtype": params, "compute_dtype": jnp.bfloat16, "adapters": adapters, "quantised": quantised}
    graphdef, shapes = flatten(abstract(spec, **chosen, remat=remat))
    learned = {name: value for name, value in shapes.items() if not adapters or ".lora_" in name}
    others = {name: value for name, value in shapes.items() if name not in learned}
    tokens = jax.ShapeDtypeStruct((2, 12), jnp.int32)

    def total(learned, others, tokens):
        return bind(graphdef, learned | others).hidden(tokens).astype(jnp.float32).sum()

    exported = jax.export.export(jax.jit(jax.grad(total)), platforms=[platform])(learned, others, tokens)
    lines = re.findall(r"stablehlo.optimization_barrier (.*?) :", exported.mlir_module())
    return spec, [line.count("%") for line in lines]


def test_a_layer_hands_over_all_of_its_gradients_at_one_time():
    spec, found = barriers("tpu")
    on_cpu = barriers("cpu")[1]
    # On both, the barrier of a recomputed layer, of its weights, its input and the gradient of its output.
    assert len(found) == len(on_cpu) + spec.layers
    per_layer = 9 + 1  # seven kernels, two norms, and the stream
    assert found.count(per_layer) == spec.layers + on_cpu.count(per_layer)


@pytest.mark.parametrize(
    "chosen", [{"remat": "none"}, {"params": jnp.float32}], ids=["nothing recomputed", "kept wider than multiplied"]
)
def test_there_is_no_turn_where_it_saves_nothing(chosen):
    assert barriers("tpu", **chosen)[1] == barriers("cpu", **chosen)[1]


def test_of_adapters_only_what_learns_waits():
    adapters = {"layers.0.mlp.up": Lora(rank=2, scale=1.0)}
    spec, found = barriers("tpu", adapters=adapters)
    on_cpu = barriers("cpu", adapters=adapters)[1]
    # For each layer one on the way there, so that the stream is kept as one array, and one on the way back.
    assert len(found) == len(on_cpu) + 2 * spec.layers
    assert found.count(3) == on_cpu.count(3) + 1  # two matrices and the stream
    # The stream alone: of both layers on the way there, and of the one without adapters on the way back.
    assert found.count(1) == on_cpu.count(1) + spec.layers + 1
