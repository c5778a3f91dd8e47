"""What is there from the first step to the last: parameters and optimizer state; and gradients, while they wait."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainer.config.tree import Config
from trainer.loop.nonfinite import uses_loss_scale
from trainer.planning.estimate.part import Part
from trainer.planning.estimate.workload import Workload, bits_of, bytes_of, count_of

FLOAT32_BYTES = 4
TABLES = ("tokens.table", "head.table")
"""Parameters whose gradient is added up row by row or chunk by chunk, in the type that they are stored in."""


def state_parts(work: Workload) -> tuple[Part, ...]:
    """Return what params and opt_state need all the time."""
    opt_bytes = work.opt_state_bytes // work.shards
    each = opt_bytes * work.shards / max(count_of(work.trained), 1)
    opt_state = Part(
        name="opt_state",
        bytes=opt_bytes,
        because=f"{work.config.optimizer.name} keeps {each:.2f} bytes per parameter{work.split}",
    )
    beside = {"frozen": work.frozen, "reference": work.reference}
    kept = (params_part(name, params, work) for name, params in beside.items() if params)
    return (params_part("params", work.trained, work), opt_state, *kept)


def params_part(name: str, params: Mapping[str, Any], work: Workload) -> Part:
    """Return what parameters need, each in the type that it is stored in."""
    types = sorted({bits_of(value) / 8 for value in params.values()})
    each = f"{types[0]:g} bytes" if len(types) == 1 else f"{types[0]:g} to {types[-1]:g} bytes"
    # A quantised kernel is codes and the scales of its blocks: more numbers than the model has parameters.
    what = "numbers" if any(key.endswith(".codes") for key in params) else "parameters"
    return Part(
        name=name, bytes=bytes_of(params) // work.shards, because=f"{count_of(params):,} {what} × {each}{work.split}"
    )


def second_state_parts(work: Workload) -> tuple[Part, ...]:
    """Return what a state that is not donated needs again, for the state that follows it."""
    if work.config.memory.donate:
        return ()
    again = sum(part.bytes for part in state_parts(work) if part.name in ("params", "opt_state"))
    return (Part(name="second_state", bytes=again, because="not donated: old and new state together"),)


def all_gradients(work: Workload) -> Part | None:
    """Return what all gradients need where they have to exist together, None where each is used up as it comes.

    Clipping, and what skips a step, need the norm of all of them before the first update; accumulation adds to all of
    them in float32.
    A matrix's gradient is kept in the type that its product was computed in, a table's in the type it is stored in.
    """
    count = count_of(work.trained)
    if not work.config.memory.donate:
        return Part(name="gradients", bytes=0, because="not donated: they find room in what will be the new state")
    if work.config.batch.accumulation_steps > 1:
        added_up = count * FLOAT32_BYTES // work.shards
        return Part(
            name="gradients", bytes=added_up, because=f"{count:,} parameters × 4 bytes, for accumulation{work.split}"
        )
    if work.config.optimizer.max_grad_norm is None and not may_skip(work.config):
        return None
    whose = "to see that they are finite" if may_skip(work.config) else "for clipping"
    needed = sum(value.size * gradient_item(name, value, work) for name, value in work.trained.items())
    return Part(
        name="gradients",
        bytes=needed // work.shards,
        because=f"{count:,} parameters × {needed / max(count, 1):.1f} bytes, all at once {whose}{work.split}",
    )


def may_skip(config: Config) -> bool:
    """Return whether a step whose gradient is not finite may be skipped."""
    return uses_loss_scale(config.precision) or config.optimizer.max_nonfinite_steps is not None


def table_gradients(work: Workload) -> Part:
    """Return the gradients that wait until the last layer is done: those of the token table, or the largest array's.

    The table is read first and, where it is the head as well, last: its gradient begins with the loss and is complete
    when everything else is.
    """
    tables = {name: value for name, value in work.trained.items() if name in TABLES[:1]}
    name, value = max((tables or work.trained).items(), key=lambda item: item[1].size)
    item = gradient_item(name, value, work)
    return Part(
        name="gradients",
        bytes=value.size * item // work.shards,
        because=f"{name}, {value.size:,} elements × {item} bytes{work.split}",
    )


def gradient_item(name: str, value: Any, work: Workload) -> int:
    """Return the bytes of one number of a parameter's gradient."""
    if work.on_cpu:
        return FLOAT32_BYTES
    stored = int(value.dtype.itemsize)
    return stored if name in TABLES else min(stored, work.item)


def end_parts(work: Workload) -> tuple[Part, ...]:
    """Return what a CPU keeps beside the state when the backward pass has ended and the updates begin.

    Where all gradients wait, that of a table that is the head too is there twice, from both its ends. Narrow parameters
    are rounded by random bits.
    """
    gradients = all_gradients(work)
    is_tied = gradients is not None and TABLES[0] in work.trained and TABLES[1] not in work.params
    table = work.trained[TABLES[0]].size * FLOAT32_BYTES if is_tied else 0
    update = update_parts(work)
    return (
        gradients or table_gradients(work),
        Part(name="table_gradient", bytes=table, because=f"{TABLES[0]} is read at both ends, {table:,} bytes"),
        *update,
        Part(
            name="random_bits",
            bytes=sum(part.bytes for part in update if part.name == "float32_copy"),
            because="as many random bits, to round them",
        ),
    )


def update_parts(work: Workload) -> tuple[Part, ...]:
    """Return what a CPU needs to update parameters beside their gradients; accelerators do it number by number.

    Parameters narrower than float32 are copied into it; Adafactor looks at a whole array's update before using it.
    """
    if not work.on_cpu:
        return ()
    narrow = sum(value.size for value in work.trained.values() if value.dtype.itemsize < FLOAT32_BYTES)
    parts = [Part(name="float32_copy", bytes=narrow * FLOAT32_BYTES, because=f"{narrow:,} parameters × 4 bytes")]
    if work.config.optimizer.name == "adafactor":
        largest = max(value.size for value in work.trained.values())
        because = f"Adafactor's update of the largest array, {largest:,} elements × 4 bytes, twice"
        parts.append(Part(name="update", bytes=2 * largest * FLOAT32_BYTES, because=because))
    return tuple(parts)
