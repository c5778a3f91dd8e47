"""The programs of a run, each as the sum of what exists when it needs most."""

from __future__ import annotations

from trainer.data.answers import EvalShape
from trainer.generate.decode import padded, prompt_rows, prompts_at_a_time
from trainer.loop.rollouts import RolloutSize, rollout_size
from trainer.loop.task import Task
from trainer.planning.estimate.layers import (
    inside_part,
    kept_part,
    products_part,
    recomputed_part,
    scanned_parts,
    scores_bytes,
    whole_layer_bytes,
)
from trainer.planning.estimate.part import Part, total_bytes
from trainer.planning.estimate.state import (
    all_gradients,
    end_parts,
    second_state_parts,
    state_parts,
    table_gradients,
    update_parts,
)
from trainer.planning.estimate.workload import Workload, count_of, workload_of

FLOAT32_BYTES = 4
Parts = tuple[Part, ...]


def estimate(task: Task, *, platform: str, asked: EvalShape | None = None) -> Parts:
    """Return the parts of the peak on each device, largest first: those of the program that needs most.

    Args:
        task: the run; its parameters as shapes.
        platform: cpu, gpu or tpu. Before jax 0.11.1 a CPU's compiler undoes rematerialisation.
        asked: what the evaluation asks. None: nothing is evaluated.
    """
    largest = max(estimates(task, platform=platform, asked=asked).values(), key=total_bytes)
    return tuple(sorted((part for part in largest if part.bytes), key=lambda part: -part.bytes))


def estimates(task: Task, *, platform: str, asked: EvalShape | None = None) -> dict[str, Parts]:
    """Return the parts of each program's peak, by the names of `loop/programs.py`."""
    work = workload_of(task, platform=platform)
    found = {"start": state_parts(work), "train": train_parts(work)}
    if asked is not None:
        found["decode"] = decode_parts(work, asked, devices=task.mesh.size)
    if (size := rollout_size(task)) is not None:
        found["rollout"] = rollout_parts(work, size, devices=task.mesh.size)
    if work.on_cpu:
        found["save"] = save_parts(work)
    return found


def save_parts(work: Workload) -> Parts:
    """Return what writing a checkpoint takes: the state, and the copy of what changes that is written from."""
    state = state_parts(work)
    copied = sum(part.bytes for part in state if part.name in ("params", "opt_state"))
    return (*state, Part(name="copy", bytes=copied, because="the copy that a checkpoint is written from"))


def train_parts(work: Workload) -> Parts:
    """Return the parts of a train step at the moment when they are most.

    With layers recomputed, and each by itself, there are three: the logits of a chunk exist; the last layer's backward
    pass is under way and all layers' inputs are kept; or the first layer's is, and all gradients are there. On a CPU
    there is a fourth: all gradients, before the first update.
    """
    always = (*state_parts(work), batch_part(work), *second_state_parts(work))
    if work.is_scanned:
        return (*always, *scanned_parts(work, logits_part(work), table_copy_part(work)))
    if work.keeps_layers:
        whole = (*unrematerialised_parts(work), logits_part(work), table_copy_part(work))
        moments = [(all_gradients(work) or table_gradients(work), *update_parts(work), *whole)]
    else:
        layers = work.spec.layers
        gathered = all_gradients(work)
        adds_up = work.config.batch.accumulation_steps > 1
        waiting = gathered if adds_up and gathered else table_gradients(work)
        # A CPU's loss in one chunk has the table's gradient after the logits.
        before = () if work.on_cpu and work.chunk_tokens == work.tokens and not adds_up else (waiting,)
        inside = (recomputed_part(work) if work.on_cpu else inside_part(work), gathered_layers_part(work))
        copy = table_copy_part(work)
        stays = () if work.shards > 1 or work.on_gpu else (copy,)
        moments = [
            (*before, kept_part(work, layers=layers + 2), products_part(work, layers=layers), logits_part(work), copy),
            (waiting, kept_part(work, layers=layers), products_part(work, layers=layers - 1), *inside, *stays),
            ((gathered or waiting), kept_part(work, layers=1), *inside),
            *([end_parts(work)] if work.on_cpu else []),
        ]
    return (*always, *max(moments, key=total_bytes))


def unrematerialised_parts(work: Workload) -> Parts:
    """Return what all layers keep whole. A CPU has one layer's gradients beside them; a TPU writes these in place."""
    one_layer = whole_layer_bytes(work)
    layers = work.spec.layers
    gradients = ", and one gradient" if work.on_cpu else ""
    return (
        Part(
            name="activations",
            bytes=(layers + work.on_cpu) * one_layer,
            because=f"{layers} layers kept whole, {one_layer:,} bytes each{gradients}",
        ),
    )


def batch_part(work: Workload) -> Part:
    """Return what the arrays of one optimizer step need, all its microbatches at once."""
    tokens = work.config.batch.accumulation_steps * work.tokens
    return Part(
        name="batch", bytes=tokens * work.bytes_per_token, because=f"{tokens:,} tokens × {work.bytes_per_token} bytes"
    )


def logits_part(work: Workload) -> Part:
    """Return the logits of one chunk. A CPU keeps apart what accelerators fuse: logits and their gradient."""
    copies = 2 if work.on_cpu else 1
    return Part(
        name="logits",
        bytes=copies * work.chunk_tokens * work.spec.vocab * FLOAT32_BYTES,
        because=f"{work.chunk_tokens:,} tokens × {work.spec.vocab:,} words × 4 bytes"
        + (", twice" if copies == 2 else ""),
    )


def table_copy_part(work: Workload) -> Part:
    """Return the head's table in the type that it is multiplied in, made once for all chunks of the loss.

    That is the compute type, where it is stored wider. The gradient of the logits is float32, and a GPU's library
    multiplies only what is of one type: the table is there in float32.
    """
    in_chunks = work.chunk_tokens < work.tokens
    numbers = work.spec.vocab * work.spec.embed
    table = work.params.get("head.table", work.params["tokens.table"])
    widened = work.on_gpu and work.item < FLOAT32_BYTES
    item = FLOAT32_BYTES if widened else work.item
    is_made = widened or work.shards > 1 or (in_chunks and table.dtype.itemsize > work.item)
    return Part(
        name="table_copy",
        bytes=numbers * item if is_made else 0,
        because=f"the head's {numbers:,} numbers × {item} bytes, in the {'gradient' if widened else 'compute'} type",
    )


def gathered_layers_part(work: Workload) -> Part:
    """Return the weights of the layer that is under way and of the next one in the compute type.

    They exist so where devices divide them, or where they are stored as codes.
    """
    inside = count_of({name: value for name, value in work.params.items() if name.startswith("layers.")})
    coded = any(name.endswith(".codes") for name in work.params)
    numbers = 2 * inside // work.spec.layers if work.shards > 1 or coded else 0
    because = f"two layers, {numbers:,} numbers × {work.item} bytes"
    return Part(name="gathered_weights", bytes=numbers * work.item, because=because)


def decode_parts(work: Workload, asked: EvalShape, *, devices: int) -> Parts:
    """Return what answering one batch of an evaluation needs.

    The keys and values of every token of every layer stay until the batch is answered; the prompts go through one layer
    after the other, all positions at once, each looked at against every slot that will be filled. Devices share the
    rows. Parameters stored wider than the compute type are copied once, outside the loop over tokens. Devices that
    divide the parameters divide that copy too, and have the head's part of the table once more.
    """
    spec, of, width = work.spec, work.config.evaluation, padded(asked.longest_tokens)
    prompts = prompt_rows(prompts_at_a_time(of.batch_size, of.samples, devices), asked.prompts, devices)
    rows, slots, because = of.samples * prompts // devices, width + of.max_new_tokens, "evaluation: "
    each = f"{rows:,} prompts" if devices == 1 else f"{rows:,} of {of.samples * prompts:,} prompts"
    table = spec.vocab * spec.embed // work.shards if work.shards > 1 else 0
    logits, item = rows * spec.vocab * FLOAT32_BYTES, work.compute_item
    return (
        *state_parts(work),
        weights_copy_part(work, "evaluation"),
        cache_part(work, rows=rows, slots=slots, what=because + each),
        Part(
            name="activations",
            bytes=reading_bytes(work, rows=rows, width=width, slots=slots),
            because=f"{because}one layer's inside and its cache again, for {each} of {width:,} tokens",
        ),
        Part(name="logits", bytes=logits, because=f"{because}{each} × {spec.vocab:,} words × 4 bytes"),
        Part(name="table_copy", bytes=table * item, because=f"{because}the head's {table:,} numbers × {item} bytes"),
    )


def rollout_parts(work: Workload, size: RolloutSize, *, devices: int) -> Parts:
    """Return what drawing the completions of a step needs.

    Prompts are read as those of an evaluation, one row each. Then their keys and values are repeated, beside the first
    ones, and further tokens drawn from logits, noise and what is left out of them, an array each.

    Args:
        work: the run on one device.
        size: of a roll-out, over all devices.
        devices: that share it.
    """
    spec, prompts, rows = work.spec, size.prompts // devices, size.rows // devices
    cache = cache_part(work, rows=rows, slots=size.slots, what=f"rolling out: {rows:,} completions")
    first = cache.bytes // size.group_size
    reading = first + reading_bytes(work, rows=prompts, width=size.width, slots=size.slots)
    logits = DRAWN_LOGITS * rows * spec.vocab * FLOAT32_BYTES
    because = f"rolling out: {rows:,} completions × {spec.vocab:,} words × 4 bytes, {DRAWN_LOGITS} times"
    # A CPU multiplies in float32, so a layer's cache is there in that type too.
    widened = cache.bytes // spec.layers * work.item // work.compute_item if work.item != work.compute_item else 0
    weights = (weights_copy_part(work, "rolling out"), gathered_layers_part(work))
    drawing = (
        *weights,
        Part(name="logits", bytes=logits, because=because),
        Part(name="activations", bytes=widened, because="rolling out: one layer's cache in float32"),
    )
    moments = [
        (
            *weights,
            Part(name="activations", bytes=reading, because=f"rolling out: {prompts:,} prompts are read, kept beside"),
        ),
        drawing,
        (Part(name="half_the_rows", bytes=cache.bytes // 2, because="rolling out: those that have not ended"),),
    ]
    return (*state_parts(work), cache, *max(moments, key=total_bytes))


DRAWN_LOGITS = 3
"""Arrays of `[rows vocab]` that a draw has at one time: logits, noise, and what is chosen from."""


def cache_part(work: Workload, *, rows: int, slots: int, what: str) -> Part:
    """Return the keys and values of so many rows with so many tokens each."""
    spec, item = work.spec, work.compute_item
    numbers = 2 * spec.layers * spec.kv_heads * spec.head_dim
    return Part(
        name="key_value_cache",
        bytes=rows * slots * numbers * item,
        because=f"{what} × {slots:,} tokens × {numbers:,} numbers × {item} bytes",
    )


def reading_bytes(work: Workload, *, rows: int, width: int, slots: int) -> int:
    """Return what reading prompts needs beside their cache: one layer's inside, and its part of the cache again."""
    spec = work.spec
    scores = scores_bytes(spec, sequences=rows, queries=width, keys=slots)
    of_a_layer = cache_part(work, rows=rows, slots=slots, what="").bytes // spec.layers
    return max((2 if work.on_cpu else 1) * scores, 3 * rows * width * spec.mlp * work.item) + of_a_layer


def weights_copy_part(work: Workload, why: str) -> Part:
    """Return the parameters in the compute type, where they are stored wider."""
    count = sum(int(value.size) for value in work.params.values() if value.dtype.itemsize > work.compute_item)
    return Part(
        name="weights_copy",
        bytes=count * work.compute_item // work.shards,
        because=f"{why}: {count:,} parameters × {work.compute_item} bytes, in the compute type{work.split}",
    )
