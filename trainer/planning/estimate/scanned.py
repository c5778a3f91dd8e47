"""What a train step needs whose equal layers are stacked, with a loop over them and another one back.

All gradients exist together, each stack's in one array. Between the loops stand the inputs of all layers, or all that
they compute where nothing is recomputed.
What a CPU turns into float32 before it multiplies, it turns for all layers at once, outside the loop.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainer.loop.loss_scale import is_scaled
from trainer.planning.estimate.layer import inside_part, kept_part, whole_layer_bytes
from trainer.planning.estimate.part import Part, total_bytes
from trainer.planning.estimate.state import FLOAT32_BYTES, update_parts
from trainer.planning.estimate.workload import Workload, bits_of, bytes_of, count_of

Parts = tuple[Part, ...]


def scanned_parts(work: Workload, logits: Part, table_copy: Part) -> Parts:
    """Return the parts beside state and batch at the moment when they are most.

    With layers recomputed it is when a chunk's logits exist, or when a layer of the way back is under way.
    """
    always = (gathered_gradients(work), *converted_parts(work), *update_parts(work), table_copy)
    if work.config.memory.remat == "none":
        return (*always, everything_part(work), logits)
    kept = kept_part(work, layers=work.spec.layers)
    moments: list[Parts] = [(kept, logits), (kept, *layer_under_way(work))]
    return (*always, *max(moments, key=total_bytes))


def gathered_gradients(work: Workload) -> Part:
    """Return all gradients; those of several microbatches are added to others, and scaled ones divided beside them."""
    count = count_of(work.trained)
    scaled = is_scaled(work.config.precision)
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
    steps = work.tokens * (7 * work.spec.embed + STEPS_KEPT[work.spec.activation] * work.spec.mlp) * work.item
    one = whole_layer_bytes(work) + steps
    because = f"{layers} layers kept whole, {one:,} bytes each, and one gradient"
    return Part(name="activations", bytes=(layers + 1) * one, because=because)


STEPS_KEPT = {"relu": -1, "silu": 2, "gelu": 2, "gelu_tanh": 4}
"""Of each activation: arrays as wide as the MLP that a loop keeps besides those that count in any case; measured."""


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
