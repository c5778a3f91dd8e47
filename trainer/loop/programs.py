"""The programs of a run by name, built from shapes, so that a plan compiles exactly what a run executes.

`draw` computes random parameters (all, or only adapters if files have the base model), `start` the initial state,
`train` and `train_64` a step for the longest and for shorter sequences, `decode` answers, `rollout…` completions, and
`export` the parameters of the equivalent plain model.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from trainer.data.answers import EvalShape
from trainer.generate.decode import decode_under, padded, prompt_rows, prompts_at_a_time
from trainer.generate.sampling import evaluation_sampling
from trainer.loop.compilation import Compiled, Program, Steps, jitted
from trainer.loop.optimizer import build_optimizer
from trainer.loop.rollouts import rollout_programs
from trainer.loop.state import compile_initial, draw_program, start_program, state_shapes, tree_shardings
from trainer.loop.step import LossFn, Params, build_step
from trainer.loop.task import REFERENCE, Task, add_shardings, batch_sharding, drop_reference_params, rows_sharding
from trainer.model.decoder import Decoder, bind, disable_adapters, set_attention
from trainer.model.model import combine
from trainer.objectives.objective import LossSums, Microbatch


def compiled_steps(task: Task, lengths: Sequence[int]) -> Steps:
    """Compile the train steps for the sequence lengths of the data, a part of `task.lengths`."""
    return Steps(by_length={length: train_program(task, length).compile() for length in sorted(lengths)})


@dataclass(frozen=True, kw_only=True)
class RunPrograms:
    """The compiled programs of a run."""

    initial: Mapping[str, Compiled]
    """Make the initial state (`compile_initial`); empty if it comes from a checkpoint."""
    steps: Steps
    """Train steps."""
    by_name: Mapping[str, tuple[Compiled, ...]]
    """All programs by their names in a plan; those with one name never run together. Those that answer and sample are
    found by their shapes."""


def compiled_run(task: Task, lengths: Sequence[int], *, eval_shape: EvalShape | None, resumed: bool) -> RunPrograms:
    """Compile all programs of a run for the sequence lengths of its data and the shape of its evaluation, if any."""
    initial, steps = {} if resumed else compile_initial(task), compiled_steps(task, lengths)
    groups: dict[str, Collection[Compiled]] = {
        "start": initial.values(),
        "train": steps.by_length.values(),
        "decode": [] if eval_shape is None else [decode_program(task, eval_shape).compile()],
        "rollout": [each.compile() for each in rollout_programs(task).values()],
    }
    by_name = {name: tuple(each) for name, each in groups.items() if each}
    return RunPrograms(initial=initial, steps=steps, by_name=by_name)


def list_programs(task: Task, *, eval_shape: EvalShape | None = None) -> dict[str, Program]:
    """Return the programs of a run by name; `eval_shape` is the shape of the evaluation, if there is one."""
    programs = {
        "start": start_program(task),
        "train": train_program(task),
        **{f"train_{length}": train_program(task, length) for length in task.lengths[:-1]},
        **rollout_programs(task),
        "export": export_program(task),
        "draw": draw_program(task),
    }
    if eval_shape is not None:
        programs["decode"] = decode_program(task, eval_shape)
    return programs


def export_program(task: Task) -> Program:
    """Return the program that merges all parameters into a plain model."""
    plain = jax.eval_shape(task.model.merged, task.model.shapes)
    shardings = tree_shardings(add_shardings(plain, task))

    def merge(kept: Params, added: Params) -> Params:
        return task.model.merged({**kept, **added})

    function = jitted(task, merge, donate_argnums=(0,), out_shardings=shardings)
    return Program(function=function, arguments=_split_plain(add_shardings(task.model.shapes, task), plain))


def _split_plain(params: Params, plain: Params) -> tuple[Params, Params]:
    """Split parameters into those that a plain model has too, and the others."""
    kept = {name: value for name, value in params.items() if name in plain}
    return kept, {name: value for name, value in params.items() if name not in plain}


def export_params(params: Params, task: Task) -> Params:
    """Return the parameters of the equivalent plain model; `params` are donated."""
    program, plain = export_program(task), jax.eval_shape(task.model.merged, task.model.shapes)
    exported: Params = program.compile().call(*_split_plain(params, plain))
    return exported


def train_program(task: Task, length: int | None = None) -> Program:
    """Return the program of an optimizer step for sequences of `length`, by default the longest of `task.lengths`."""
    state, config = state_shapes(task), task.config
    step = build_step(
        build_loss_fn(task),
        build_optimizer(config.optimizer, steps=config.limits.steps),
        max_grad_norm=config.optimizer.max_grad_norm,
        seed=config.seed,
        max_nonfinite_steps=config.optimizer.max_nonfinite_steps,
    )
    sharding = batch_sharding(task.mesh)
    batch = {
        name: jax.ShapeDtypeStruct((config.batch.accumulation_steps, *shape.shape), shape.dtype, sharding=sharding)
        for name, shape in task.objective.batch_shapes(config.batch.microbatch_size * task.mesh.size, length).items()
    }
    donated = (0,) if config.memory.donate else ()
    function = jitted(task, step, donate_argnums=donated, out_shardings=(tree_shardings(state), None))
    arguments = (state, add_shardings(task.frozen, task), batch)
    return Program(function=function, arguments=arguments)


def decode_program(task: Task, eval_shape: EvalShape) -> Program:
    """Return the program that answers a batch of prompts, as `generate` calls it."""
    settings, width, devices = task.config.evaluation, padded(eval_shape.longest_tokens), task.mesh.size
    sharding = rows_sharding(task.mesh) if devices > 1 else None
    rows = prompt_rows(prompts_at_a_time(settings.batch_size, settings.samples, devices), eval_shape.prompts, devices)
    shape: Any = jax.ShapeDtypeStruct
    is_sampled = settings.samples > 1
    keys = [shape((rows * settings.samples,), jax.eval_shape(jax.random.key, 0).dtype)] if is_sampled else []
    sampling = {"sampling": evaluation_sampling(settings)} if is_sampled else {}
    return Program(
        function=decode_under(task.compiler_options),
        arguments=(
            task.model.graphdef,
            add_shardings(task.model.shapes, task),
            shape((rows, width), jnp.int32, sharding=sharding),
            shape((rows,), jnp.int32, sharding=sharding),
            shape((), jnp.int32),
            *keys,
        ),
        settings={"max_new_tokens": settings.max_new_tokens, "over": sharding, **sampling},
    )


def build_loss_fn(task: Task) -> LossFn:
    """Return the objective's loss as a function of the model's parameters."""
    has_dropout = any(lora.dropout > 0 for lora in task.model.adapters.values())

    def decoder(params: Params) -> Decoder:
        return set_attention(bind(task.graphdef, params), task.kernel)

    def reference_model(trained: Params, frozen: Params) -> Decoder:
        """Return the model before training: with the stored initial parameters, or with its adapters disabled."""
        kept = {name.removeprefix(REFERENCE): value for name, value in frozen.items() if name.startswith(REFERENCE)}
        return decoder(kept) if kept else disable_adapters(decoder(combine(trained, frozen)))

    def loss_fn(trained: Params, frozen: Params, batch: Microbatch, key: Key[Array, ""]) -> LossSums:
        model = decoder(combine(trained, drop_reference_params(frozen)))
        reference = (reference_model(trained, frozen),) if task.objective.needs_reference else ()
        return task.objective.loss_fn(model, batch, key if has_dropout else None, *reference)

    return loss_fn
