"""The programs of a run by name, each built from shapes: a plan can compile the list that a run calls.

| name | from | to |
|---|---|---|
| draw | – | random parameters: all where no files hold them, else those of adapters |
| restore | – | the frozen ones of them, where no files hold them; the state comes from a checkpoint |
| start | trained parameters, used up | the state before the first step |
| train | state (used up where it is donated), frozen parameters, batch | the next state, what the step measured |
| train_64 | the same for a batch of shorter sequences, one program for each of `data.buckets` but the longest | |
| decode | all parameters, prompts | what the model writes |
| export | all parameters, used up | those of the plain model that they make together |
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from trainer.data.prompts import Asked
from trainer.generate.decode import decode_under, padded
from trainer.loop.alarms import without_alarms
from trainer.loop.mesh import batch_sharding
from trainer.loop.state import first_state_of, optimizer_of, random_params, shardings_of, state_shapes, with_shardings
from trainer.loop.step import LossFn, Params, build_step
from trainer.loop.task import REFERENCE, Task, without_reference
from trainer.methods.method import combine
from trainer.model.build import without_adapters
from trainer.model.decoder import Decoder
from trainer.model.lora import is_lora
from trainer.model.params import bind
from trainer.objectives.objective import LossSums, Microbatch


@dataclass(frozen=True, kw_only=True)
class Compiled:
    """A program that can be called."""

    call: Any
    """Runs it."""
    executable: Any
    """The `jax.stages.Compiled`, which knows its memory."""
    jaxpr: Any
    """The traced program, for reading back what runs."""
    seconds: float
    """How long tracing and compiling took, or reading what was compiled before."""
    is_kept: bool = False
    """Whether it was compiled before, by this run or an earlier one, and read from JAX's cache."""

    @property
    def peak_bytes(self) -> int | None:
        """The most bytes that it has on one device at one time, its arguments and results among them.

        A runtime sets a program's temporaries aside as one piece, so all of them count. None: the backend does not
        state it.
        """
        analysis, added = self.executable.memory_analysis(), self.added_bytes
        return None if added is None else int(analysis.argument_size_in_bytes) + added

    @property
    def added_bytes(self) -> int | None:
        """What it takes on one device besides its arguments: temporaries, and results that lie in no argument's place.

        None: the backend does not state it.
        """
        analysis = self.executable.memory_analysis()
        if analysis is None:
            return None
        return int(analysis.temp_size_in_bytes + analysis.output_size_in_bytes - analysis.alias_size_in_bytes)


HIT = "/jax/compilation_cache/cache_hits"
"""What JAX calls it when it finds a program in its cache."""


@contextmanager
def cache_hits() -> Iterator[list[str]]:
    """Give a list that grows with every program that JAX takes from its cache while it is open."""
    hits: list[str] = []

    def heard(event: str, **_: Any) -> None:
        if event == HIT:
            hits.append(event)

    jax.monitoring.register_event_listener(heard)
    try:
        yield hits
    finally:
        jax.monitoring.unregister_event_listener(heard)


@dataclass(frozen=True, kw_only=True)
class Program:
    """A program before it is compiled."""

    function: Any
    """A function under `jax.jit`."""
    arguments: tuple[Any, ...]
    """Shapes, types and shardings of what it is called with."""
    settings: dict[str, Any]
    """Static arguments by name."""
    donated: tuple[int, ...] = ()
    """Arguments that are used up, by place."""
    static: tuple[int, ...] = ()
    """Arguments that are not arrays, by place."""

    def compile(self) -> Compiled:
        """Compile it for the devices of its arguments, which need not be there."""
        began = time.perf_counter()
        traced = self.function.trace(*self.arguments, **self.settings)
        with without_alarms(), cache_hits() as hits:
            executable = traced.lower().compile()
        seconds = time.perf_counter() - began
        # A CPU's arrays of 4-bit numbers do not state a layout that its own executables accept. The jitted function
        # takes them, and finds what was compiled here.
        packed = any(leaf.dtype == jnp.uint4 for leaf in jax.tree.leaves(self.arguments) if hasattr(leaf, "dtype"))
        call = self.function if packed else executable
        return Compiled(call=call, executable=executable, jaxpr=traced.jaxpr, seconds=seconds, is_kept=bool(hits))


def programs_of(task: Task, *, asked: Asked | None = None) -> dict[str, Program]:
    """Return the programs of a run: `decode` where something is evaluated, `restore` where no files are read."""
    found = {
        "start": start_program(task),
        "train": train_program(task),
        **{f"train_{length}": train_program(task, length) for length in task.lengths[:-1]},
        "export": export_program(task),
    }
    model = task.model
    if model.reads_weights:
        found["draw"] = draw_program(task, is_lora)
    else:
        found["draw"] = draw_program(task, lambda name: True)
        found["restore"] = draw_program(task, lambda name: bool(task.reference) or not model.method.is_trained(name))
    if asked is not None:
        found["decode"] = decode_program(task, asked)
    return found


def jitted(task: Task, function: Callable[..., Any], **settings: Any) -> Any:
    """Return a function under `jax.jit`, compiled for the instructions that the task's configuration states."""
    return jax.jit(function, compiler_options=dict(task.compiler_options) or None, **settings)


def draw_program(task: Task, wanted: Callable[[str], bool]) -> Program:
    """Return the random parameters before the first step, those whose names are wanted."""

    def drawn() -> Params:
        return {name: value for name, value in random_params(task).items() if wanted(name)}

    shapes = with_shardings({name: shape for name, shape in task.shapes.items() if wanted(name)}, task)
    function = jitted(task, drawn, out_shardings=shardings_of(shapes))
    return Program(function=function, arguments=(), settings={})


def start_program(task: Task) -> Program:
    """Return the state before the first step; trained parameters become its own, so that they never exist twice."""
    state = state_shapes(task)
    function = jitted(
        task, lambda trained: first_state_of(task, trained), donate_argnums=(0,), out_shardings=shardings_of(state)
    )
    return Program(function=function, arguments=(state.trained,), settings={}, donated=(0,))


def export_program(task: Task) -> Program:
    """Return the parameters of the plain model that trained and frozen ones make together."""
    plain = jax.eval_shape(task.model.merged, task.model.shapes)
    kept, added = split_plain(with_shardings(task.model.shapes, task), plain)
    function = jitted(
        task,
        lambda kept, added: task.model.merged({**kept, **added}),
        donate_argnums=(0,),
        out_shardings=shardings_of(with_shardings(plain, task)),
    )
    return Program(function=function, arguments=(kept, added), settings={}, donated=(0,))


def split_plain(params: Params, plain: Params) -> tuple[Params, Params]:
    """Return the parameters that a plain model has too, and the others."""
    kept = {name: value for name, value in params.items() if name in plain}
    return kept, {name: value for name, value in params.items() if name not in plain}


def export_params(params: Params, task: Task) -> Params:
    """Return the parameters of the plain model that all of these make together; they are used up."""
    plain: Params = jax.eval_shape(task.model.merged, task.model.shapes)
    found: Params = export_program(task).compile().call(*split_plain(params, plain))
    return found


def train_program(task: Task, length: int | None = None) -> Program:
    """Return one optimizer step.

    Args:
        task: what is trained.
        length: tokens of each sequence, one of `task.lengths`. None: the longest.
    """
    state = state_shapes(task)
    frozen = with_shardings(task.frozen, task)
    optimizer = optimizer_of(task)
    config = task.config
    step = build_step(
        loss_fn_of(task),
        optimizer,
        max_grad_norm=config.optimizer.max_grad_norm,
        seed=config.seed,
    )
    sharding = batch_sharding(task.mesh)
    batch = {
        name: jax.ShapeDtypeStruct((config.batch.accumulation_steps, *shape.shape), shape.dtype, sharding=sharding)
        for name, shape in task.objective.described(config.batch.microbatch_size * task.mesh.size, length).items()
    }
    donated = (0,) if config.memory.donate else ()
    function = jitted(task, step, donate_argnums=donated, out_shardings=(shardings_of(state), None))
    return Program(function=function, arguments=(state, frozen, batch), settings={}, donated=donated)


def decode_program(task: Task, asked: Asked) -> Program:
    """Return the answer to one batch of prompts, as `generate` requests it."""
    rows, width = min(task.config.evaluation.batch_size, asked.prompts), padded(asked.longest_tokens)
    described: Any = jax.ShapeDtypeStruct
    return Program(
        function=decode_under(task.compiler_options),
        arguments=(
            task.model.graphdef,
            with_shardings(task.model.shapes, task),
            described((rows, width), jnp.int32),
            described((rows,), jnp.int32),
            described((), jnp.int32),
        ),
        settings={"max_new_tokens": task.config.evaluation.max_new_tokens, "keep_states": True},
        static=(0,),
    )


def loss_fn_of(task: Task) -> LossFn:
    """Return the objective's sums as a function of the model's parameters."""
    model, objective = task.model, task.objective
    drops = any(lora.dropout > 0 for lora in model.adapters.values())

    def loss_fn(trained: Params, frozen: Params, batch: Microbatch, key: Key[Array, ""]) -> LossSums:
        decoder = bind(task.graphdef, combine(trained, without_reference(frozen)))
        dropout_key = key if drops else None
        if not objective.needs_reference:
            return objective.loss_fn(decoder, batch, dropout_key)
        return objective.loss_fn(decoder, batch, dropout_key, reference_model(task, trained, frozen))

    return loss_fn


def reference_model(task: Task, trained: Params, frozen: Params) -> Decoder:
    """Return the model as it was before training: its adapters switched off, or with the parameters kept of then."""
    kept = {name.removeprefix(REFERENCE): value for name, value in frozen.items() if name.startswith(REFERENCE)}
    return bind(task.graphdef, kept) if kept else without_adapters(bind(task.graphdef, combine(trained, frozen)))
