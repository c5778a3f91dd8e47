"""The programs of a run by name, each built from shapes: a plan can compile the list that a run calls.

| name | from | to |
|---|---|---|
| draw | – | random parameters: all where no files hold them, else those of adapters |
| restore | – | the frozen ones of them, where no files hold them; the state comes from a checkpoint |
| start | trained parameters, used up | the state before the first step |
| train | state (used up where it is donated), frozen parameters, batch | the next state, what the step measured |
| train_64 | the same for a batch of shorter sequences, one program for each of `data.buckets` but the longest | |
| decode | all parameters, prompts | what the model writes |
| rollout | all parameters, prompts | the first token of each completion, keys and values of all |
| rollout_further | all parameters, what came of the tokens before (used up) | further tokens; they are few at a time |
| rollout_taken | what came of the tokens before | the same of half the rows |
| rollout_half | as rollout_further, of half the rows | as there |
| export | all parameters, used up | those of the plain model that they make together |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from trainer.data.answers import EvalShape
from trainer.generate.decode import decode_under, padded, prompt_rows, prompts_at_a_time
from trainer.generate.sampling import evaluation_sampling
from trainer.loop.compilation import Compiled, Program, jitted
from trainer.loop.mesh import batch_sharding, rows_sharding
from trainer.loop.rollouts import rollout_programs
from trainer.loop.state import (
    Beginning,
    compiled_beginning,
    draw_program,
    optimizer_of,
    shardings_of,
    start_program,
    state_shapes,
    with_shardings,
)
from trainer.loop.step import Batch, LossFn, Params, StepMetrics, TrainState, build_step
from trainer.loop.task import REFERENCE, Task, without_reference
from trainer.model.decoder import Decoder, bind, disable_adapters, set_attention
from trainer.model.lora import is_lora
from trainer.model.model import combine
from trainer.objectives.objective import LossSums, Microbatch
from trainer.recorder.memory import MemoryWatch, Part


@dataclass(frozen=True, kw_only=True)
class Steps:
    """Compiled steps that differ in nothing but the length of the sequences that they take."""

    by_length: Mapping[int, Compiled]
    """By tokens of a sequence, padding included, ascending."""

    def __call__(self, state: TrainState, frozen: Params, batch: Batch) -> tuple[TrainState, StepMetrics]:
        """Run the step that is compiled for the batch's length."""
        done: tuple[TrainState, StepMetrics] = self.by_length[batch["tokens"].shape[-1]].call(state, frozen, batch)
        return done

    @property
    def longest(self) -> Compiled:
        """The step of the longest sequences, which needs the most memory."""
        return self.by_length[max(self.by_length)]

    @property
    def seconds(self) -> float:
        """How long tracing and compiling all of them took."""
        return sum(step.seconds for step in self.by_length.values())


def compiled_steps(task: Task, lengths: Sequence[int]) -> Steps:
    """Return the steps of a run, compiled.

    Args:
        task: what is trained.
        lengths: tokens of the sequences that its data has, each one of `task.lengths`.
    """
    return Steps(by_length={length: train_program(task, length).compile() for length in sorted(lengths)})


@dataclass(frozen=True, kw_only=True)
class RunPrograms:
    """The programs of a run, in the order in which they run."""

    beginning: Beginning | None
    """None: the state comes from a checkpoint."""
    steps: Steps
    decode: Compiled | None
    """Answers one batch of prompts. None: nothing is evaluated. `generate` finds it by its shapes."""
    rollout: tuple[Compiled, ...] = ()
    """Draw the completions of a step. Empty: none are drawn. `GroupPrograms` finds them by their shapes."""

    @property
    def by_name(self) -> Mapping[str, tuple[Compiled, ...]]:
        """The programs under the names that a plan gives them; those of one name never run together."""
        begins = self.beginning
        found = {
            "start": () if begins is None else tuple(each for each in (begins.draw, begins.start) if each is not None),
            "train": tuple(self.steps.by_length.values()),
            "decode": () if self.decode is None else (self.decode,),
            "rollout": self.rollout,
        }
        return {name: programs for name, programs in found.items() if programs}

    @property
    def compiled_before(self) -> list[str]:
        """The names of those that were read from the cache of compiled programs."""
        return [name for name, programs in self.by_name.items() if all(each.is_kept for each in programs)]

    def observed_by(self, memory: MemoryWatch) -> RunPrograms:
        """Return the programs with each counted as a part of the run from its first call on."""
        begins = self.beginning
        if begins is not None:
            draw = None if begins.draw is None else _observe("start", begins.draw, memory)
            begins = Beginning(draw=draw, start=_observe("start", begins.start, memory))
        steps = {length: _observe("train", step, memory) for length, step in self.steps.by_length.items()}
        return replace(self, beginning=begins, steps=Steps(by_length=steps))


def _observe(part: Part, program: Compiled, memory: MemoryWatch) -> Compiled:
    """Return a program at whose first call a part of the run begins."""
    seen: list[str] = []

    def call(*arguments: Any) -> Any:
        if not seen:
            memory.begins(part)
            seen.append(part)
        return program.call(*arguments)

    return replace(program, call=call)


def compiled_run(task: Task, lengths: Sequence[int], *, asked: EvalShape | None, resumed: bool) -> RunPrograms:
    """Return all programs of a run, compiled for its devices.

    Args:
        task: what is trained; only shapes of its parameters are looked at.
        lengths: tokens of the sequences that its data has, each one of `task.lengths`.
        asked: the prompts of the evaluation. None: nothing is evaluated.
        resumed: whether the state comes from a checkpoint.
    """
    return RunPrograms(
        beginning=None if resumed else compiled_beginning(task),
        steps=compiled_steps(task, lengths),
        decode=None if asked is None else decode_program(task, asked).compile(),
        rollout=tuple(each.compile() for each in rollout_programs(task).values()),
    )


def programs_of(task: Task, *, asked: EvalShape | None = None) -> dict[str, Program]:
    """Return the programs of a run: `decode` where something is evaluated, `restore` where no files are read.

    Where completions are drawn, `rollout` and those that follow it.
    """
    found = {
        "start": start_program(task),
        "train": train_program(task),
        **{f"train_{length}": train_program(task, length) for length in task.lengths[:-1]},
        **rollout_programs(task),
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
        max_nonfinite_steps=config.optimizer.max_nonfinite_steps,
    )
    sharding = batch_sharding(task.mesh)
    batch = {
        name: jax.ShapeDtypeStruct((config.batch.accumulation_steps, *shape.shape), shape.dtype, sharding=sharding)
        for name, shape in task.objective.described(config.batch.microbatch_size * task.mesh.size, length).items()
    }
    donated = (0,) if config.memory.donate else ()
    function = jitted(task, step, donate_argnums=donated, out_shardings=(shardings_of(state), None))
    return Program(function=function, arguments=(state, frozen, batch), settings={}, donated=donated)


def decode_program(task: Task, asked: EvalShape) -> Program:
    """Return the answer to one batch of prompts, as `generate` requests it."""
    of, width = task.config.evaluation, padded(asked.longest_tokens)
    over = rows_sharding(task.mesh) if task.mesh.size > 1 else None
    rows = prompt_rows(prompts_at_a_time(of.batch_size, of.samples, task.mesh.size), asked.prompts, task.mesh.size)
    described: Any = jax.ShapeDtypeStruct
    drawn = [] if of.samples == 1 else [described((rows * of.samples,), jax.eval_shape(jax.random.key, 0).dtype)]
    sampling = {} if of.samples == 1 else {"sampling": evaluation_sampling(of)}
    return Program(
        function=decode_under(task.compiler_options),
        arguments=(
            task.model.graphdef,
            with_shardings(task.model.shapes, task),
            described((rows, width), jnp.int32, sharding=over),
            described((rows,), jnp.int32, sharding=over),
            described((), jnp.int32),
            *drawn,
        ),
        settings={"max_new_tokens": of.max_new_tokens, "over": over, **sampling},
        static=(0,),
    )


def loss_fn_of(task: Task) -> LossFn:
    """Return the objective's sums as a function of the model's parameters."""
    model, objective = task.model, task.objective
    drops = any(lora.dropout > 0 for lora in model.adapters.values())

    def loss_fn(trained: Params, frozen: Params, batch: Microbatch, key: Key[Array, ""]) -> LossSums:
        decoder = set_attention(bind(task.graphdef, combine(trained, without_reference(frozen))), task.kernel)
        dropout_key = key if drops else None
        if not objective.needs_reference:
            return objective.loss_fn(decoder, batch, dropout_key)
        return objective.loss_fn(decoder, batch, dropout_key, reference_model(task, trained, frozen))

    return loss_fn


def reference_model(task: Task, trained: Params, frozen: Params) -> Decoder:
    """Return the model as it was before training: its adapters switched off, or with the parameters kept of then."""
    kept = {name.removeprefix(REFERENCE): value for name, value in frozen.items() if name.startswith(REFERENCE)}
    found = bind(task.graphdef, kept) if kept else disable_adapters(bind(task.graphdef, combine(trained, frozen)))
    return set_attention(found, task.kernel)
