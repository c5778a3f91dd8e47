"""Equal layers stacked, with a loop over them: the same model as single layers, and as transformers has it."""

import re

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from golden import CASES, FLOAT32, assert_equals_transformers, load_folder
from tiny_models import GEMMA, assert_alike, equal_layers, loss_and_gradient, random_model, stack

from trainer.model.decoder import abstract, bind, build, flatten, params_sha256
from trainer.model.families import spec_from_config
from trainer.model.layers import Lora
from trainer.model.stacks import stack_params, unstack_layers, unstack_on_devices


@pytest.mark.slow
def test_adapters_on_some_layers_drop_the_same_inputs_and_texts_of_packed_rows_stay_apart():
    spec = spec_from_config(GEMMA | {"num_hidden_layers": 12})
    names = sorted(f"layers.{layer}.{each}" for layer in range(8, 12) for each in ("mlp.up", "attention.query"))
    adapters = {name: Lora(rank=2, scale=2.0, dropout=0.25, number=number) for number, name in enumerate(names)}
    runs = equal_layers(spec, adapters=adapters)
    assert runs == (range(8), range(8, 12))
    chosen = FLOAT32 | {"remat": "layer", "adapters": adapters}
    alone = random_model(spec, **chosen)
    structure, like = flatten(abstract(spec, **chosen, layer_groups=runs))
    together = structure, stack(alone[1], like)
    more = {"key": jax.random.key(7), "segments": jnp.asarray([[0] * 5 + [1] * 7, [0] * 12], jnp.int32)}
    first = loss_and_gradient(*alone, **more)
    # Twelve layers of large random numbers grow a rounding to 1.02e-4.
    assert_alike(first, loss_and_gradient(*together, **more), tolerance=5e-4)
    assert loss_and_gradient(*together)[0] != pytest.approx(first[0], rel=1e-3)


BITS = {"mlp.up": "nf4", "attention.query": "int8"}


@pytest.mark.slow
def test_every_layer_of_a_stack_is_drawn_and_quantised_as_by_itself():
    sizes = {"num_hidden_layers": 3, "hidden_size": 64, "num_attention_heads": 2, "num_key_value_heads": 1}
    spec = spec_from_config(GEMMA | sizes | {"tie_word_embeddings": False})
    quantised = {f"layers.{layer}.{name}": kind for layer in range(3) for name, kind in BITS.items()}
    adapters = {f"layers.{layer}.mlp.down": Lora(rank=2, scale=1.0, number=layer) for layer in range(3)}
    chosen = FLOAT32 | {"adapters": adapters, "quantised": quantised}
    runs = equal_layers(spec, adapters=adapters, quantised=quantised)
    assert runs == (range(3),)
    structures = []

    @jax.jit
    def drawn():
        made = [flatten(build(spec, key=jax.random.key(3), **chosen, layer_groups=each)) for each in ((), runs)]
        structures.extend(graphdef for graphdef, _ in made)
        return [params for _, params in made]

    alone, together = drawn()
    assert params_sha256(together) == params_sha256(alone)
    assert_alike(loss_and_gradient(structures[0], alone), loss_and_gradient(structures[1], together))


GOLDEN = ["gpt2-untied", "llama", "mistral", "gemma", "gemma2", "qwen2", "qwen3", "gemma3", "smollm3"]


@pytest.mark.slow(but=("smollm3",))
@pytest.mark.parametrize("name", GOLDEN)
def test_stacks_give_the_logits_loss_and_gradient_of_transformers(name):
    source, _, params = load_folder(CASES / name)
    runs = equal_layers(source.spec)
    assert len(runs) == 1
    graphdef, like = flatten(abstract(source.spec, **FLOAT32 | {"remat": "layer"}, layer_groups=runs))
    assert_equals_transformers(name, graphdef, stack(params, like))


def test_stacks_come_apart_as_they_were_and_take_no_memory_besides():
    device = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    rows = np.arange(96, dtype=np.float32).reshape(3, 2, 16)
    alone = {f"layers.{number}.kernel": rows[number] for number in range(3)} | {"table": rows[0]}
    like = {
        "layers.0:3.kernel": jax.ShapeDtypeStruct((3, 2, 16), jnp.float32, sharding=device),
        "table": jax.ShapeDtypeStruct((2, 16), jnp.float32, sharding=device),
    }
    given = dict(alone)
    together = stack_params(given, like)
    assert (given, set(together)) == ({}, set(like))
    again = unstack_layers(together)
    assert list(again) == sorted(alone)
    assert all(np.array_equal(again[name], alone[name]) for name in alone)
    assert np.shares_memory(again["layers.1.kernel"], np.asarray(together["layers.0:3.kernel"]))
    assert all(isinstance(value, jax.Array) for value in unstack_on_devices(together).values())


def test_a_layer_hands_over_all_of_its_gradients_at_one_time():
    """On a TPU, whose compiler is given a barrier with an operand for each gradient of a layer."""
    spec = spec_from_config(GEMMA)
    chosen = {"params_dtype": "bfloat16", "compute_dtype": "bfloat16", "remat": "layer"}
    graphdef, shapes = flatten(abstract(spec, **chosen))
    total = jax.grad(lambda params, tokens: bind(graphdef, params).hidden(tokens).astype(jnp.float32).sum())
    tokens, counts = jax.ShapeDtypeStruct((2, 12), jnp.int32), []
    for platform in ("tpu", "cpu"):
        exported = jax.export.export(jax.jit(total), platforms=[platform])(shapes, tokens)
        barriers = re.findall(r"stablehlo.optimization_barrier (.*?) :", exported.mlir_module())
        counts.append([barrier.count("%") for barrier in barriers])
    on_tpu, on_cpu = counts
    # On both, the barrier of a recomputed layer, of its weights, its input and the gradient of its output.
    assert len(on_tpu) == len(on_cpu) + spec.layers
    per_layer = 9 + 1  # seven kernels, two norms, and the stream
    assert on_tpu.count(per_layer) == spec.layers + on_cpu.count(per_layer)
