"""Compile programs from shapes, and record the compiled step in the manifest.

Optimizer, dtypes, donation, sharding, rematerialization and attention are read back from the traced and compiled step.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp

from evidence.effective import settings_in_manifest
from trainer.data.batches import global_batch_size
from trainer.loop.optimizer import build_schedule, detect_optimizer, evaluate_schedule
from trainer.loop.step import Batch, StepMetrics, TrainState
from trainer.loop.task import Task
from trainer.model.attention import BLOCKWISE_NAME, AttentionKind
from trainer.model.decoder import parameter_count, params_sha256
from trainer.model.layers import KEEPS_NOTHING
from trainer.model.model import combine
from trainer.model.source import describe_shrinking
from trainer.model.stacks import REMAT_POLICIES, Params, Remat, is_stack
from trainer.objectives.data import Data
from trainer.recorder.recorder import Recorder

CACHE_HIT = "/jax/compilation_cache/cache_hits"
"""Event of JAX for a program that is loaded from the compilation cache."""

DONATION_TOLERANCE = 0.01
"""Fraction of the state that donation may miss: scalars and padding."""


@dataclass(frozen=True, kw_only=True)
class Compiled:
    """A compiled program: `call` runs it, `executable` is the `jax.stages.Compiled`.

    `seconds` is the time of tracing and compiling, or of loading from the compilation cache if it `is_kept`.
    """

    call: Any
    executable: Any
    jaxpr: Any
    seconds: float
    is_kept: bool = False

    @property
    def peak_bytes(self) -> int | None:
        """Peak memory on one device with arguments and results, or None if the backend does not report it."""
        found = self.executable.memory_analysis()
        if found is None:
            return None
        held = found.argument_size_in_bytes + found.output_size_in_bytes - found.alias_size_in_bytes
        return int(held + found.temp_size_in_bytes)


@dataclass(frozen=True, kw_only=True)
class Program:
    """A jitted function to compile, the shapes, dtypes and shardings of its arguments, and static settings."""

    function: Any
    arguments: tuple[Any, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)

    def compile(self) -> Compiled:
        """Compile the program for the devices of its arguments, which need not be present."""
        began, hits = time.perf_counter(), list[str]()

        def listen(event: str, **_: Any) -> None:
            if event == CACHE_HIT:
                hits.append(event)

        traced = self.function.trace(*self.arguments, **self.settings)
        jax.monitoring.register_event_listener(listen)
        try:
            executable = traced.lower().compile()
        finally:
            jax.monitoring.unregister_event_listener(listen)
        seconds = time.perf_counter() - began
        # A CPU's executables reject arrays of 4-bit numbers, which lack a layout. The jitted function accepts them and
        # finds the program compiled here.
        is_packed = any(leaf.dtype == jnp.uint4 for leaf in jax.tree.leaves(self.arguments) if hasattr(leaf, "dtype"))
        call = self.function if is_packed else executable
        return Compiled(call=call, executable=executable, jaxpr=traced.jaxpr, seconds=seconds, is_kept=bool(hits))


@dataclass(frozen=True, kw_only=True)
class Steps:
    """Compiled train steps that differ only in the sequence length of their batches."""

    by_length: Mapping[int, Compiled]
    """Steps by padded sequence length, ascending."""

    def __call__(self, state: TrainState, frozen: Params, batch: Batch) -> tuple[TrainState, StepMetrics]:
        """Run the step for the length of a batch."""
        done: tuple[TrainState, StepMetrics] = self.by_length[batch["tokens"].shape[-1]].call(state, frozen, batch)
        return done

    @property
    def longest(self) -> Compiled:
        """The step for the longest sequences, which needs the most memory."""
        return self.by_length[max(self.by_length)]

    @property
    def seconds(self) -> float:
        """Total time of tracing and compiling."""
        return sum(step.seconds for step in self.by_length.values())


def jitted(task: Task, function: Callable[..., Any], **settings: Any) -> Any:
    """Return `jax.jit` of a function with the compiler options of a task."""
    return jax.jit(function, compiler_options=dict(task.compiler_options) or None, **settings)


def donation(compiled: Any, state: Any) -> dict[str, Any]:
    """Return the manifest's `training.donation` of a `jax.stages.Compiled` whose first argument is like `state`."""
    state_bytes = sum(_size_on_one_device(leaf) * leaf.dtype.itemsize for leaf in jax.tree.leaves(state))
    analysis = compiled.memory_analysis()
    aliased = None if analysis is None else int(analysis.alias_size_in_bytes)
    effective = None if aliased is None else aliased >= (1 - DONATION_TOLERANCE) * state_bytes
    return {"state_bytes": state_bytes, "aliased_bytes": aliased, "effective": effective}


def tree_bytes(tree: Any) -> int:
    """Return the size of a tree of arrays or shapes over all devices; replicated arrays count once."""
    return sum(int(leaf.size) * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def _size_on_one_device(leaf: Any) -> int:
    sharding = getattr(leaf, "sharding", None)
    return math.prod(leaf.shape if sharding is None else sharding.shard_shape(leaf.shape))


def is_split(tree: Any) -> bool:
    """Return whether any array of a tree is split over devices."""
    return any(_size_on_one_device(leaf) < leaf.size for leaf in jax.tree.leaves(tree))


def most_common_dtype(tree: Any) -> str:
    """Return the dtype of most numbers of a tree."""
    sizes = Counter[str]()
    for leaf in jax.tree.leaves(tree):
        sizes[str(leaf.dtype)] += leaf.size
    return sizes.most_common(1)[0][0]


def compute_dtype(jaxpr: Any) -> str:
    """Return the dtype of most matrix products of a traced step."""
    products = (each for each in iter_equations(jaxpr) if each.primitive.name == "dot_general")
    return Counter(str(each.invars[0].aval.dtype) for each in products).most_common(1)[0][0]


def count_remat_blocks(jaxpr: Any) -> int:
    """Return the number of rematerialized blocks of a traced step, without chunks of an MLP."""
    return sum(
        each.primitive.name in ("remat", "remat2", "checkpoint") and each.params["policy"] is not KEEPS_NOTHING
        for each in iter_equations(jaxpr)
    )


def remat_kind(jaxpr: Any, *, besides: int) -> Remat:
    """Return the rematerialization of layers in a traced step; `besides` is the number of blocks outside layers."""
    if any(each.params.get("policy") is REMAT_POLICIES["dots"] for each in iter_equations(jaxpr)):
        return "dots"
    return "layer" if count_remat_blocks(jaxpr) > besides else "none"


def attention_kind(jaxpr: Any) -> AttentionKind:
    """Return the attention over whole sequences of a traced step."""
    equations = list(iter_equations(jaxpr))
    if any(each.primitive.name == "pallas_call" for each in equations):
        return "splash"
    return "blockwise" if BLOCKWISE_NAME in {each.params.get("name") for each in equations} else "plain"


def iter_equations(jaxpr: Any) -> Iterator[Any]:
    """Yield every equation of a traced program, including those inside loops, branches and calls."""
    for equation in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        yield equation
        for inner in inner_programs(equation):
            yield from iter_equations(inner)


def inner_programs(equation: Any) -> Iterator[Any]:
    """Yield the traced programs that an equation calls."""
    for value in equation.params.values():
        for part in value if isinstance(value, tuple | list) else (value,):
            if hasattr(getattr(part, "jaxpr", part), "eqns"):
                yield part


def record_program(
    recorder: Recorder,
    steps: Steps,
    state: TrainState,
    frozen: Params,
    task: Task,
    data: Data,
    *,
    weights: str,
    forced: bool,
) -> None:
    """Record the model and the effective settings of the compiled steps, given the state before the first one.

    `weights` is the origin of the parameters, pretrained or random; `forced` tells whether --force overrode a refusal.
    """
    program = steps.longest
    model = model_group(task, program, state, frozen, weights=weights)
    training = training_group(task, program, state, frozen, forced=forced)
    recorder.set(model=model, training=training)
    recorder.set(effective=_effective_group(recorder.manifest, task, data))
    recorder.update("result", compile_seconds=steps.seconds)
    compiled = f"{'loaded from the compilation cache' if program.is_kept else 'compiled'} in {steps.seconds:.1f} s"
    if len(steps.by_length) > 1:
        each = ", ".join(f"train_{length} in {step.seconds:.1f} s" for length, step in steps.by_length.items())
        compiled = f"compiled for {len(steps.by_length)} lengths of sequences: {each}"
    donation, dtypes = training["donation"], model["dtypes"]
    trained = f", {parameter_count(state.trained):,} trained" if frozen else ""
    donated = {True: "state donated", False: "state not donated", None: "donation unknown"}[donation["effective"]]
    recorder.log(
        "info",
        "compiled",
        f"{model['parameters']:,} parameters{trained}; {training['optimizer']['name']}, {dtypes['params']} params, "
        f"{dtypes['compute']} compute, {donated}; {compiled}",
        compile_seconds=steps.seconds,
        lengths=list(steps.by_length),
        family=model["family"],
        weights_sha256=model["weights_sha256"],
        state_bytes=donation["state_bytes"],
        aliased_bytes=donation["aliased_bytes"],
    )


def model_group(task: Task, program: Compiled, state: TrainState, frozen: Params, *, weights: str) -> dict[str, Any]:
    """Return the group `model`; dtypes are the most common ones of parameters and traced matrix products."""
    params, source = combine(state.trained, frozen), task.model.source
    stored = {name: value for name, value in (frozen or params).items() if not name.endswith((".codes", ".scales"))}
    trained = {"trained": most_common_dtype(state.trained)} if frozen else {}
    return {
        "name": task.config.model.name,
        "revision": source.revision,
        "family": source.spec.family,
        "parameters": parameter_count({name: value for name, value in params.items() if not name.endswith(".scales")}),
        "trainable_parameters": parameter_count(state.trained),
        "weights": weights,
        **({"made_small": small} if (small := describe_shrinking(source)) else {}),
        "weights_sha256": params_sha256(params),
        **({"frozen_sha256": params_sha256(frozen)} if frozen else {}),
        "tokenizer_sha256": source.tokenizer_sha256(),
        "dtypes": {"params": most_common_dtype(stored), **trained, "compute": compute_dtype(program.jaxpr)},
    }


def training_group(task: Task, program: Compiled, state: TrainState, frozen: Params, *, forced: bool) -> dict[str, Any]:
    """Return the group `training`: the effective settings of a compiled step, of its state and frozen parameters."""
    config, devices, last = task.config, task.mesh.size, task.config.limits.steps - 1
    schedule = build_schedule(config.optimizer, steps=config.limits.steps)
    peak = min(max(config.optimizer.warmup_steps - 1, 0), last)  # the rate falls from the end of the warm-up
    state_bytes = tree_bytes(state.opt_state)
    return {
        "method": task.model.method.kind,
        "optimizer": {
            "name": detect_optimizer(state.opt_state),
            "state": most_common_dtype(state.opt_state).replace("uint8", "int8"),
            "state_bytes": state_bytes,
            "state_bytes_per_parameter": state_bytes / parameter_count(state.trained),
        },
        "schedule": {
            "name": config.optimizer.schedule,
            "warmup_steps": config.optimizer.warmup_steps,
            "peak_learning_rate": evaluate_schedule(schedule, peak),
            "final_learning_rate": evaluate_schedule(schedule, last),
        },
        "steps_planned": config.limits.steps,
        "steps_done": int(state.step),
        "batch_size": global_batch_size(config, devices=devices),
        "microbatch_size": config.batch.microbatch_size,
        "accumulation_steps": config.batch.accumulation_steps,
        "tokens_per_step": task.tokens_per_step,
        "sequence_length": config.data.max_length,
        "remat": remat_kind(program.jaxpr, besides=task.objective.rematerialised_blocks),
        "layers": "scanned" if any(map(is_stack, (*state.trained, *frozen))) else "unrolled",
        "attention": attention_kind(program.jaxpr),
        "loss_chunk_tokens": config.memory.loss_chunk_tokens,
        "donation": donation(program.executable, state),
        "mesh": {"devices": devices, "shard_params": is_split(state)},
        "seed": config.seed,
        "forced": forced,
    }


def _effective_group(manifest: Mapping[str, Any], task: Task, data: Data) -> dict[str, Any]:
    """Return the group `effective`: the effective value of each setting, by its path in the configuration."""
    effective: dict[str, Any] = {
        "method": task.model.method.manifest_entry(task.model.adapters),
        "objective": task.objective.manifest_entry(),
        "data": {"packing": "segments" in task.objective.batch_shapes(1), "buckets": len(task.lengths)},
    }
    for key, value in settings_in_manifest(manifest).items():
        *groups, name = key.split(".")
        reduce(lambda parent, group: parent.setdefault(group, {}), groups, effective)[name] = value
    for group, values in data.effective().items():
        effective[group] = effective.get(group, {}) | values
    return effective
