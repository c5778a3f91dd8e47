"""Peak memory of a train step, or of an evaluation that needs more, in closed form: what is added up, and how.

This is the estimate for when no compiler has been asked. It counts the tensors that decide the peak and leaves out
what is small beside them; `ERROR_FRACTION` says how far it was off against the compiler's own analysis of the same
steps. Whether the sum is acceptable is `plan.py`'s question.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax

from trainer.config.tree import Config
from trainer.data.prompts import Asked
from trainer.generate.decode import padded
from trainer.loop.optimizer import build_optimizer
from trainer.loop.step import in_float32
from trainer.loop.task import Task
from trainer.model.spec import ModelSpec

ERROR_FRACTION = 0.3
"""Largest distance from the compiler's figure over the cases of benchmarks/results/memory_estimate.json."""

FLOAT32_BYTES = 4
ITEM_BYTES = {"float32": 4, "bfloat16": 2}


@dataclass(frozen=True, kw_only=True)
class Part:
    """One thing that memory is needed for, on each device."""

    name: str
    bytes: int
    because: str
    """The multiplication behind the figure, in words."""


def estimate(task: Task, *, platform: str, asked: Asked | None = None) -> tuple[Part, ...]:
    """Return the parts of the peak on each device, largest first: those of a step or, if it is more, of an answer.

    Args:
        task: the run; its parameters as shapes.
        platform: cpu, gpu or tpu. On a CPU the compiler undoes rematerialisation.
        asked: what the evaluation asks. None: nothing is evaluated.
    """
    config, spec = task.config, task.model.source.spec
    remat = config.memory.remat == "layer" and platform != "cpu"
    kept, for_update = state_parts(task)
    activations = activation_parts(task, remat=remat, on_cpu=platform == "cpu")
    peaks = [(*kept, *for_update, *activations, batch_part(task))]
    if asked is not None:
        peaks.append((*kept, *answer_parts(config, spec, asked)))
    largest = max(peaks, key=lambda parts: sum(part.bytes for part in parts))
    return tuple(sorted(largest, key=lambda part: -part.bytes))


def batch_part(task: Task) -> Part:
    """Return what the arrays of one optimizer step need, all its microbatches at once."""
    config = task.config
    arrays = task.objective.described(config.batch.microbatch_size)
    tokens = config.batch.accumulation_steps * arrays["tokens"].size
    of_token = sum(array.size * array.dtype.itemsize for array in arrays.values()) // arrays["tokens"].size
    return Part(name="batch", bytes=tokens * of_token, because=f"{tokens:,} tokens × {of_token} bytes")


def answer_parts(config: Config, spec: ModelSpec, asked: Asked) -> tuple[Part, ...]:
    """Return what answering one batch of an evaluation needs besides params and opt_state.

    The keys and values of every token of every layer stay until the batch is answered; the prompts go through one layer
    after the other, all positions at once, each looked at against every slot that will be filled.
    """
    item = ITEM_BYTES[config.precision.compute]
    rows, width = min(config.evaluation.batch_size, asked.prompts), padded(asked.longest_tokens)
    slots = width + config.evaluation.max_new_tokens
    numbers = 2 * spec.layers * spec.kv_heads * spec.head_dim
    scores = 2 * rows * spec.heads * width * slots * FLOAT32_BYTES
    prompt_layer = rows * width * layer_widths(spec) * item + scores
    return (
        Part(
            name="key_value_cache",
            bytes=rows * slots * numbers * item,
            because=f"evaluation: {rows:,} prompts × {slots:,} tokens × {numbers:,} numbers × {item} bytes",
        ),
        Part(
            name="activations",
            bytes=prompt_layer,
            because=f"evaluation: one layer's inside for {rows:,} prompts of {width:,} tokens",
        ),
        Part(
            name="logits",
            bytes=rows * spec.vocab * FLOAT32_BYTES,
            because=f"evaluation: {rows:,} prompts × {spec.vocab:,} words × 4 bytes",
        ),
    )


def state_parts(task: Task) -> tuple[tuple[Part, ...], tuple[Part, ...]]:
    """Return what params and opt_state need all the time, and what gradients and copies need in a step."""
    config, trained = task.config, task.model.trained
    shards = task.mesh.size if config.mesh.shard_params else 1
    split = f" / {shards} devices" if shards > 1 else ""
    params = params_part("params", trained, shards=shards, split=split)
    opt_bytes = opt_state_bytes(config, trained) // shards
    opt_state = Part(
        name="opt_state",
        bytes=opt_bytes,
        because=f"{config.optimizer.name} keeps {opt_bytes * shards / count_of(trained):.2f} bytes per parameter"
        + split,
    )
    kept: tuple[Part, ...] = (params, opt_state)
    if task.model.frozen:
        kept = (*kept, params_part("frozen", task.model.frozen, shards=shards, split=split))
    gradients = gradient_part(config, trained, shards=shards, split=split)
    if config.memory.donate:
        return kept, (gradients,)
    because = "not donated: old and new state together"
    return kept, (gradients, Part(name="second_state", bytes=params.bytes + opt_bytes, because=because))


def params_part(name: str, params: Mapping[str, Any], *, shards: int, split: str) -> Part:
    """Return what parameters need, each in the type that it is stored in."""
    needed = sum(value.size * value.dtype.itemsize for value in params.values())
    types = sorted({value.dtype.itemsize for value in params.values()})
    each = f"{types[0]} bytes" if len(types) == 1 else f"{types[0]} to {types[-1]} bytes"
    return Part(name=name, bytes=needed // shards, because=f"{count_of(params):,} parameters × {each}{split}")


def count_of(params: Mapping[str, Any]) -> int:
    """Return the number of parameters."""
    return sum(value.size for value in params.values())


def gradient_part(config: Config, params: Mapping[str, Any], *, shards: int, split: str) -> Part:
    """Return what gradients need.

    Clipping needs the norm of all gradients before the first update, and accumulation adds to all of them, so either
    holds them all in float32. Otherwise each is used up as soon as it exists, and the largest array decides.
    """
    sizes = [value.size for value in params.values()]
    if config.optimizer.max_grad_norm is not None or config.batch.accumulation_steps > 1:
        why = "clipping" if config.optimizer.max_grad_norm is not None else "accumulation"
        return Part(
            name="gradients",
            bytes=sum(sizes) * FLOAT32_BYTES // shards,
            because=f"{sum(sizes):,} parameters × 4 bytes, all at once for {why}{split}",
        )
    return Part(
        name="gradients",
        bytes=max(sizes) * FLOAT32_BYTES // shards,
        because=f"largest array, {max(sizes):,} elements × 4 bytes{split}",
    )


def opt_state_bytes(config: Config, params: Mapping[str, Any]) -> int:
    """Return the bytes of opt_state over all devices, from the shapes that the optimizer itself would make."""
    optimizer = build_optimizer(config.optimizer, steps=config.limits.steps)
    state = jax.eval_shape(lambda tree: optimizer.init(in_float32(tree)), dict(params))
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(state))


def activation_parts(task: Task, *, remat: bool, on_cpu: bool) -> tuple[Part, ...]:
    """Return what the forward pass keeps for the backward pass, and the logits of one chunk.

    Accelerators fuse what a CPU keeps apart: there the logits, their exponentials and their gradient share one buffer.
    """
    config, spec = task.config, task.model.source.spec
    item = ITEM_BYTES[config.precision.compute]
    sequences, length = task.objective.described(config.batch.microbatch_size)["tokens"].shape
    tokens = sequences * length
    one_layer = layer_bytes(spec, sequences=sequences, length=length, item=item)
    if remat:
        kept = spec.layers * tokens * spec.embed * item
        activations = Part(
            name="activations",
            bytes=kept + one_layer,
            because=f"{spec.layers} layer inputs of {tokens:,} tokens × {spec.embed}, and one layer's inside",
        )
    else:
        activations = Part(
            name="activations",
            bytes=(spec.layers + 1) * one_layer,
            because=f"{spec.layers} layers kept whole, {one_layer:,} bytes each, and one gradient",
        )
    # A chunk is some positions of every sequence, and one at least.
    chunk = min((task.objective.chunk_positions or length) * sequences, tokens)
    logits = Part(
        name="logits",
        bytes=(3 if on_cpu else 1) * chunk * spec.vocab * FLOAT32_BYTES,
        because=f"{chunk:,} tokens × {spec.vocab:,} words × 4 bytes{', three times' if on_cpu else ''}",
    )
    return activations, logits


def layer_bytes(spec: ModelSpec, *, sequences: int, length: int, item: int) -> int:
    """Return the bytes of the tensors inside one layer: the residual stream, projections, scores and MLP.

    Attention scores are `[batch heads seq seq]`, twice in float32 (scores and weights). For 1 sequence of 4 tokens,
    1 head of width 2, embed 2, mlp 8, no gate, float32: per token 4·2 (stream and norms) + 4·2 (q, k, v, out)
    + 2·8 (before and after the activation) = 32 numbers, 512 bytes; scores 2·16·4 = 128 bytes.
    """
    scores = 2 * sequences * spec.heads * length * length * FLOAT32_BYTES
    return sequences * length * layer_widths(spec) * item + scores


def layer_widths(spec: ModelSpec) -> int:
    """Return the numbers of one token inside one layer, attention scores left out."""
    heads_width = spec.heads * spec.head_dim
    kv_width = 2 * spec.kv_heads * spec.head_dim
    return 4 * spec.embed + 2 * heads_width + kv_width + (3 if spec.gated_mlp else 2) * spec.mlp
