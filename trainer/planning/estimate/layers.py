"""The inside of one layer, what the forward pass keeps of all, and what a step needs whose equal layers are stacked.

Stacked layers run in a loop and another one back: all gradients exist together, each stack's in one array. Between the
loops stand the inputs of all layers, or all that they compute where nothing is recomputed. A CPU converts what it turns
into float32 for all layers at once, outside the loop.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Literal

from trainer.loop.nonfinite import uses_loss_scale
from trainer.model.attention import BLOCK
from trainer.model.layers import apply_activation
from trainer.model.spec import Activation, ModelSpec
from trainer.planning.estimate.part import Part, total_bytes
from trainer.planning.estimate.state import FLOAT32_BYTES, update_parts
from trainer.planning.estimate.workload import Workload, bits_of, bytes_of, count_of


def kept_part(work: Workload, *, layers: int) -> Part:
    """Return the inputs of layers that wait for their turn in the backward pass."""
    numbers = work.tokens * work.spec.embed
    return Part(
        name="layer_inputs",
        bytes=layers * numbers * work.item,
        because=f"{layers} × {work.tokens:,} tokens × {work.spec.embed} × {work.item} bytes",
    )


def products_part(work: Workload, *, layers: int) -> Part:
    """Return what layers keep of their products with kernels, where they do (`dots`).

    All but the MLP's last, which the way back does not ask for; of an MLP in chunks nothing is kept.
    """
    spec = work.spec
    width = spec.embed + spec.heads * spec.head_dim + 2 * spec.kv_heads * spec.head_dim
    mlp = (2 if spec.gated_mlp else 1) * spec.mlp if work.mlp_tokens == work.tokens else 0
    numbers = work.tokens * (width + mlp) if work.config.memory.remat == "dots" else 0
    because = f"{layers} layers' products with weights, {numbers:,} numbers × {work.item} bytes"
    return Part(name="activations", bytes=layers * numbers * work.item, because=because)


def inside_part(work: Workload) -> Part:
    """Return the most of one layer's inside that exists together in its backward pass.

    Either the scores and their gradient (attention is under way), or the scores, which attention still needs, and what
    the MLP keeps between its products (before and after the activation, the gate, and a gradient). Several devices
    begin with the next layer while they wait for each other, and keep its MLP too. A GPU's library multiplies out of
    and into arrays of its own: the scores are there in the compute type too, and of an MLP what its adapters add.
    """
    scores, blocks = training_scores(work)
    layers = 2 if work.shards > 1 else 1
    mlp = layers * mlp_arrays(work) * work.mlp_tokens * work.spec.mlp * work.item
    if work.mlp_tokens < work.tokens:
        # What goes into the loop over chunks, what comes out, and the gradient: in order of chunks and of sequences.
        mlp += 6 * work.tokens * work.spec.embed * work.item
    multiplied = scores * work.item // FLOAT32_BYTES if work.on_gpu and work.item < FLOAT32_BYTES else 0
    projections = layers * work.tokens * attention_width(work.spec) * work.item + multiplied
    if blocks >= mlp:
        because = f"{work.attention} attention of {work.sequences} × {work.spec.heads} heads × {work.length:,} tokens"
    elif scores >= mlp:
        because = f"scores and their gradient for {work.sequences} × {work.spec.heads} heads × {work.length:,}²"
    else:
        because = f"scores, and the MLP of {work.spec.mlp:,} for {work.mlp_tokens:,} tokens"
    return Part(
        name="layer_inside",
        bytes=scores + max(scores + blocks, mlp) + projections,
        because=because,
        # Short of memory, a compiler computes the scores again instead of keeping them beside the MLP.
        least_bytes=max(2 * scores + blocks, mlp) + projections,
    )


def mlp_arrays(work: Workload) -> int:
    """Return how many arrays of an MLP's width exist together on the way back on an accelerator."""
    of_tpu = 4 if work.spec.gated_mlp else 3
    if not work.on_gpu:
        return of_tpu
    return 2 * of_tpu if any(name.endswith(".lora_b") for name in work.trained) else 4


def recomputed_part(work: Workload) -> Part:
    """Return the most of one layer, computed again and whole, that exists on a CPU in its backward pass.

    Beside the layer stand what its adapters add, its scores once more, and their gradient or three tensors of the MLP.
    """
    scores, blocks = training_scores(work)
    added = sum(value.shape[-1] for name, value in work.trained.items() if name.endswith(".lora_b")) // work.spec.layers
    mlp = 3 * work.mlp_tokens * work.spec.mlp * work.item
    beside = added * work.tokens * work.item + scores + max(scores + blocks, mlp)
    one = whole_layer_bytes(work)
    because = f"one layer whole, {one:,} bytes, and {beside:,} of its gradients"
    return Part(name="layer_inside", bytes=one + beside, because=because)


def training_scores(work: Workload) -> tuple[int, int]:
    """Return the bytes of one layer's scores, and of what stands in their place where attention goes in blocks.

    Splash keeps a number of each head and token in 128 places. A loop has the scores of a pair of blocks three times,
    and adds up gradients of queries, keys and values in float32.
    """
    spec, tokens = work.spec, work.tokens
    if work.attention == "plain":
        return scores_bytes(spec, sequences=work.sequences, queries=work.length, keys=work.length), 0
    if work.attention == "splash":
        return 0, tokens * spec.heads * LANES * FLOAT32_BYTES
    block = min(BLOCK, work.length)
    added = tokens * (spec.heads + 2 * spec.kv_heads) * spec.head_dim * FLOAT32_BYTES
    return 0, 3 * scores_bytes(spec, sequences=work.sequences, queries=block, keys=block) + added


LANES = 128
"""Numbers that a TPU keeps next to each other at least."""


def scores_bytes(spec: ModelSpec, *, sequences: int, queries: int, keys: int) -> int:
    """Return the bytes of the attention scores of one layer, `[batch heads queries keys]` in float32.

    For 2 sequences, 4 heads, 8 queries that look at 16 keys: 2 · 4 · 8 · 16 · 4 = 4,096.
    """
    return sequences * spec.heads * queries * keys * FLOAT32_BYTES


def attention_width(spec: ModelSpec) -> int:
    """Return the numbers of one token that attention reads and gives: the stream, queries, keys, values, heads."""
    return 2 * spec.embed + 2 * spec.heads * spec.head_dim + 2 * spec.kv_heads * spec.head_dim


def whole_layer_bytes(work: Workload) -> int:
    """Return the bytes of all that one layer computes on the way forward and the backward pass asks for.

    Per token the stream before and after both norms, queries, keys, values, heads, and the MLP's products before and
    after the activation; and the scores, on a CPU twice: before and after the softmax, which a TPU fuses.
    """
    spec = work.spec
    widths = 4 * spec.embed + 2 * spec.heads * spec.head_dim + 2 * spec.kv_heads * spec.head_dim
    mlp = (4 if spec.gated_mlp else 2) * spec.mlp
    scores, blocks = training_scores(work)
    return (work.tokens * widths + work.mlp_tokens * mlp) * work.item + (2 if work.on_cpu else 1) * scores + blocks


Parts = tuple[Part, ...]


def scanned_parts(work: Workload, logits: Part, table_copy: Part) -> Parts:
    """Return the parts beside state and batch at the moment when they are most.

    With layers recomputed it is when a chunk's logits exist, or when a layer of the way back is under way.
    """
    always = (gathered_gradients(work), *converted_parts(work), *update_parts(work), table_copy)
    if work.config.memory.remat == "none":
        return (*always, everything_part(work), logits)
    kept = kept_part(work, layers=work.spec.layers)
    all_products, others = (products_part(work, layers=work.spec.layers - under_way) for under_way in (0, 1))
    moments: list[Parts] = [(kept, all_products, logits), (kept, others, *layer_under_way(work))]
    return (*always, *max(moments, key=total_bytes))


def gathered_gradients(work: Workload) -> Part:
    """Return all gradients; those of several microbatches are added to others, and scaled ones divided beside them."""
    count = count_of(work.trained)
    scaled = uses_loss_scale(work.config.precision)
    times = 1 + (work.config.batch.accumulation_steps > 1) + scaled
    if not work.config.memory.donate:
        return Part(name="gradients", bytes=0, because="not donated: they find room in what will be the new state")
    why = " for accumulation" if times > 1 + scaled else " to see that they are finite" if scaled else ""
    because = f"{count:,} parameters × 4 bytes" + (f", {times} times{why}" if times > 1 else ", all at once")
    return Part(name="gradients", bytes=times * count * FLOAT32_BYTES, because=because)


def everything_part(work: Workload) -> Part:
    """Return what all layers keep whole, and one layer's gradients.

    A loop keeps what its steps are derived from, one by one, where layers by themselves are fused over them: of each
    norm the stream thrice, and of the activation what it is made of.
    """
    layers = work.spec.layers
    more = arrays_kept(work.spec.activation) - 1  # whole_layer_bytes counts the activation's argument
    steps = work.tokens * (7 * work.spec.embed + more * work.spec.mlp) * work.item
    one = whole_layer_bytes(work) + steps
    because = f"{layers} layers kept whole, {one:,} bytes each, and one gradient"
    return Part(name="activations", bytes=(layers + 1) * one, because=because)


@cache
def arrays_kept(activation: Activation) -> int:
    """Return how many float32 arrays the way back through an activation is derived from, besides constants.

    The traced derivative states them: ReLU has 0 (it keeps truth values), SiLU and GELU 3. Those of GELU with tanh are
    5, of which jax 0.12 makes 4: `1 - tanh²` is one where earlier versions keep `tanh` and `1 - tanh`.
    """
    number = jax.ShapeDtypeStruct((1,), jnp.float32)
    program = jax.make_jaxpr(lambda x: jax.vjp(partial(apply_activation, activation), x)[1])(number).jaxpr
    derived = set(program.invars)
    for equation in program.eqns:
        if any(not isinstance(each, Literal) and each in derived for each in equation.invars):
            derived.update(equation.outvars)
    kept = {each for each in program.outvars if not isinstance(each, Literal)}
    return sum(each in derived and each.aval.dtype == jnp.float32 for each in kept)


def layer_under_way(work: Workload) -> Parts:
    """Return the inside of one layer with its gradients, and its weights taken out of their stacks."""
    weights = layer_weights_bytes(work)
    taken = Part(name="layer_weights", bytes=weights, because=f"one layer's, {weights:,} bytes, out of the stacks")
    if not work.on_cpu:
        return inside_part(work), taken
    one = whole_layer_bytes(work)
    inside = Part(name="layer_inside", bytes=2 * one, because=f"one layer whole, {one:,} bytes, and its gradients")
    return inside, taken


def layer_weights_bytes(work: Workload) -> int:
    """Return the bytes of the mean layer's weights."""
    inside = {name: value for name, value in work.params.items() if name.startswith("layers.")}
    return bytes_of(inside) // work.spec.layers


def converted_parts(work: Workload) -> Parts:
    """Return what a CPU turns into another type before its loops: numbers that are stored in fewer bits than it takes.

    Narrow parameters become float32, and those that learn are rounded again by as many random bits; codes of 4 bits
    are taken apart into bytes; of a float32 table rounded to the compute type the head multiplies a copy.
    """
    if not work.on_cpu:
        return ()
    narrow = narrow_count(work.params)
    learned = narrow_count(work.trained)
    codes = sum(int(value.size) for value in work.params.values() if bits_of(value) == 4)
    table = work.spec.vocab * work.spec.embed if work.compute_item < FLOAT32_BYTES and not narrow else 0
    count = FLOAT32_BYTES * (narrow + learned + table) + codes
    because = f"{narrow + table + codes:,} numbers turned into the types that a CPU multiplies in"
    return (Part(name="converted", bytes=count, because=because),)


def narrow_count(params: Mapping[str, Any]) -> int:
    """Return how many parameters are kept in half precision."""
    return sum(int(value.size) for value in params.values() if bits_of(value) == 16)
