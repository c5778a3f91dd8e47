"""The inside of one layer, and what the forward pass keeps of all layers for the backward pass."""

from __future__ import annotations

from trainer.model.spec import ModelSpec
from trainer.planning.estimate.part import Part
from trainer.planning.estimate.workload import Workload

FLOAT32_BYTES = 4


def kept_part(work: Workload, *, layers: int) -> Part:
    """Return the inputs of layers that wait for their turn in the backward pass."""
    numbers = work.tokens * work.spec.embed
    return Part(
        name="layer_inputs",
        bytes=layers * numbers * work.item,
        because=f"{layers} × {work.tokens:,} tokens × {work.spec.embed} × {work.item} bytes",
    )


def inside_part(work: Workload) -> Part:
    """Return the most of one layer's inside that exists together in its backward pass.

    Either the scores and their gradient (attention is under way), or the scores, which attention still needs, and what
    the MLP keeps between its products (before and after the activation, the gate, and a gradient). Several devices
    begin with the next layer while they wait for each other, and keep its MLP too.
    """
    scores = scores_bytes(work.spec, sequences=work.sequences, queries=work.length, keys=work.length)
    layers = 2 if work.shards > 1 else 1
    mlp = layers * (4 if work.spec.gated_mlp else 3) * work.tokens * work.spec.mlp * work.item
    projections = layers * work.tokens * attention_width(work.spec) * work.item
    if scores >= mlp:
        because = f"scores and their gradient for {work.sequences} × {work.spec.heads} heads × {work.length:,}²"
    else:
        because = f"scores, and the MLP of {work.spec.mlp:,} for {work.tokens:,} tokens"
    return Part(
        name="layer_inside",
        bytes=scores + max(scores, mlp) + projections,
        because=because,
        # Short of memory, a compiler computes the scores again instead of keeping them beside the MLP.
        least_bytes=max(2 * scores, mlp) + projections,
    )


def recomputed_part(work: Workload) -> Part:
    """Return the most of one layer, computed again and whole, that exists on a CPU in its backward pass.

    Beside the layer stand what its adapters add, its scores once more, and their gradient or three tensors of the MLP.
    """
    scores = scores_bytes(work.spec, sequences=work.sequences, queries=work.length, keys=work.length)
    added = sum(value.shape[-1] for name, value in work.trained.items() if name.endswith(".lora_b")) // work.spec.layers
    beside = added * work.tokens * work.item + scores + max(scores, 3 * work.tokens * work.spec.mlp * work.item)
    one = whole_layer_bytes(work)
    because = f"one layer whole, {one:,} bytes, and {beside:,} of its gradients"
    return Part(name="layer_inside", bytes=one + beside, because=because)


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
    widths += (4 if spec.gated_mlp else 2) * spec.mlp
    scores = scores_bytes(spec, sequences=work.sequences, queries=work.length, keys=work.length)
    return work.tokens * widths * work.item + (2 if work.on_cpu else 1) * scores
