"""What a train step needs whose equal layers are stacked, with a loop over them and another one back.

All gradients exist together, each stack's in one array. Between the loops stand the inputs of all layers, or all that
they compute where nothing is recomputed, and then their weights too: the way back reads what the way forth was given.
What a CPU turns into float32 before it multiplies, it turns for all layers at once, outside the loop.
"""

from __future__ import annotations

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
    """Return all gradients; those of several microbatches are added to as many again."""
    count = count_of(work.trained)
    times = 1 + (work.config.batch.accumulation_steps > 1)
    if not work.config.memory.donate:
        return Part(name="gradients", bytes=0, because="not donated: they find room in what will be the new state")
    because = f"{count:,} parameters × 4 bytes, stacked" + (", twice for accumulation" if times > 1 else "")
    return Part(name="gradients", bytes=times * count * FLOAT32_BYTES, because=because)


def everything_part(work: Workload) -> Part:
    """Return what all layers keep whole, their weights with it, and one layer's gradients."""
    one, weights, layers = whole_layer_bytes(work), layer_weights_bytes(work), work.spec.layers
    because = f"{layers} layers kept whole, {one:,} bytes each, with {weights:,} of weights, and one gradient"
    return Part(name="activations", bytes=(layers + 1) * one + layers * weights, because=because)


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
    """Return what a CPU turns into another type before its loops: narrow numbers, or those for a narrow compute type.

    Numbers are rounded to the compute type and multiplied as float32; codes of 4 bits are taken apart into bytes.
    Parameters narrower than float32 that learn are rounded up or down by as many random bits.
    """
    if not work.on_cpu:
        return ()
    plain = [value for value in work.params.values() if bits_of(value) >= 16]
    narrow = sum(int(value.size) for value in plain if value.dtype.itemsize < FLOAT32_BYTES)
    rounded = 0 if work.compute_item == FLOAT32_BYTES else sum(int(value.size) for value in plain) - narrow
    codes = sum(int(value.size) for value in work.params.values() if bits_of(value) == 4)
    learned = sum(int(v.size) for v in work.trained.values() if v.dtype.itemsize < FLOAT32_BYTES)
    count = FLOAT32_BYTES * (narrow + learned) + (FLOAT32_BYTES + work.compute_item) * rounded + codes
    because = f"{narrow + rounded + codes:,} numbers turned into the types that a CPU multiplies in"
    return (Part(name="converted", bytes=count, because=because),)
