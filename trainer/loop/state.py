"""The train state: its shapes, and the initial one, from random parameters or a model's files.

Parameters never exist twice: random ones are computed in place, and files are read onto the devices tensor by tensor.
A state is passed in a one-element list, so that the loop has the only reference and donation can free it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import jax

from schemas.problems import Problem, ProblemError, problem_of
from trainer.config.tree import OptimizerConfig
from trainer.loop.compilation import Compiled, Program, jitted
from trainer.loop.optimizer import build_optimizer
from trainer.loop.step import TrainState, first_state, initial_loss_scale, initial_skipped_steps
from trainer.loop.task import Task, add_shardings, copy_reference_params
from trainer.model.decoder import flatten, params_sha256
from trainer.model.layers import is_lora
from trainer.model.load import load_params
from trainer.model.model import partition
from trainer.model.source import ModelSource
from trainer.model.stacks import Params, stack_params, stacked_names

REFUSED = 3
"""Exit code if the base model is not the one of a run."""


def tree_shardings(tree: Any) -> Any:
    """Return the sharding of each array or shape of a tree."""
    return jax.tree.map(lambda leaf: leaf.sharding, tree)


def state_shapes(task: Task) -> TrainState:
    """Return shapes, dtypes and shardings of a run's state."""
    state: TrainState = add_shardings(unplaced_state(task), task)
    return state


def unplaced_state(task: Task) -> TrainState:
    """Return shapes and dtypes of a run's state, without shardings."""
    config = task.config
    is_scaled = config.precision.compute == "float16"
    return _state_of_shapes(config.optimizer, config.limits.steps, tuple(task.trained.items()), is_scaled=is_scaled)


@lru_cache(maxsize=64)  # optimizers trace a function for each array, and plans need many states
def _state_of_shapes(
    optimizer: OptimizerConfig, steps: int, shapes: tuple[tuple[str, jax.ShapeDtypeStruct], ...], *, is_scaled: bool
) -> TrainState:
    state: TrainState = jax.eval_shape(partial(_init_state, optimizer, steps, is_scaled=is_scaled), dict(shapes))
    return state


def _init_state(optimizer: OptimizerConfig, steps: int, trained: Params, *, is_scaled: bool) -> TrainState:
    scale = initial_loss_scale() if is_scaled else None
    skipped = None if optimizer.max_nonfinite_steps is None else initial_skipped_steps()
    return first_state(trained, build_optimizer(optimizer, steps=steps), scale, skipped)


def draw_program(task: Task, wanted: Callable[[str], bool]) -> Program:
    """Return the program that computes random initial parameters, equal for equal seeds, whose names are `wanted`."""
    decoder = replace(task.model.decoder, layer_groups=task.model.layer_groups if task.is_scanned else ())

    def draw() -> Params:
        params = flatten(decoder.build(jax.random.key(task.config.seed)))[1]
        return {name: value for name, value in params.items() if wanted(name)}

    shapes = add_shardings({name: shape for name, shape in task.shapes.items() if wanted(name)}, task)
    return Program(function=jitted(task, draw, out_shardings=tree_shardings(shapes)), arguments=())


def start_program(task: Task) -> Program:
    """Return the program that makes the initial state from trained parameters, which are donated to it."""
    state, config = state_shapes(task), task.config

    def start(trained: Params) -> TrainState:
        return _init_state(config.optimizer, config.limits.steps, trained, is_scaled=state.loss_scale is not None)

    function = jitted(task, start, donate_argnums=(0,), out_shardings=tree_shardings(state))
    return Program(function=function, arguments=(state.trained,))


def compile_initial(task: Task) -> dict[str, Compiled]:
    """Compile the programs that make the initial state: `start`, and `draw` unless files have all parameters."""
    reads_weights, programs = task.model.reads_weights, {}
    if not reads_weights or task.model.adapters:
        programs["draw"] = draw_program(task, lambda name: is_lora(name) or not reads_weights).compile()
    return programs | {"start": start_program(task).compile()}


def initial_state(
    task: Task, programs: Mapping[str, Compiled] | None = None, on_start: Callable[[], None] = lambda: None
) -> tuple[list[TrainState], Params]:
    """Return the initial state in a one-element list, and the frozen parameters; see `compile_initial`.

    `on_start` is called before programs run, after files are read. Raises `ProblemError` with exit code 2 if the
    model's files cannot be used.
    """
    programs = programs or compile_initial(task)
    if not task.model.reads_weights:
        on_start()
    trained, frozen = partition(task.model.method, initial_params(task, programs.get("draw")))
    if task.reference:
        frozen |= copy_reference_params(trained)  # before they are donated
    on_start()
    state: TrainState = programs["start"].call(trained)
    return [state], frozen


def initial_params(
    task: Task, draw: Compiled | None = None, *, wanted: Callable[[str], bool] = lambda name: True
) -> Params:
    """Return the initial parameters whose names are `wanted` on their devices, sorted by name.

    They are read from files, or computed by `draw` or a program compiled here. Raises `ProblemError` with exit code 2
    if the model's files cannot be used.
    """
    model = task.model
    if not model.reads_weights:
        drawn: Params = (draw or draw_program(task, wanted).compile()).call()
        return drawn
    read = load_params(model.source, add_shardings(model.base, task), on_devices=not task.is_scanned)
    read = {name: value for name, value in read.items() if wanted(name)}
    shapes = {name: shape for name, shape in add_shardings(task.shapes, task).items() if stacked_names(name)[0] in read}
    params = stack_params(read, shapes)
    if model.adapters:
        params |= (draw or draw_program(task, lambda name: is_lora(name) and wanted(name)).compile()).call()
    return dict(sorted(params.items()))


def refuse_other_base(manifest: Mapping[str, Any], task: Task, *, file: str, trains: bool) -> None:
    """Refuse a base model with another tokenizer or other weights than a run's (`ProblemError`, exit code 3).

    Only frozen parameters are compared, or all initial ones if it `trains` again. `file` names the run in problems.
    """
    refuse_other_tokenizer(manifest, task.model.source, file=file)
    model = manifest["model"]
    if model["weights"] != "pretrained" or not task.model.reads_weights:
        return
    if "frozen_sha256" in model and task.model.frozen:
        stated = model["frozen_sha256"]
        found = params_sha256(initial_params(task, wanted=lambda name: not task.model.method.is_trained(name)))
    elif trains and manifest["parent"] is None:
        stated, found = model["weights_sha256"], params_sha256(initial_params(task))
    else:
        return
    if stated != found:
        raise ProblemError([base_mismatch(manifest, "weights", stated, found, file)], exit_code=REFUSED)


def refuse_other_tokenizer(manifest: Mapping[str, Any], source: ModelSource, *, file: str) -> None:
    """Refuse a tokenizer that is not the one of a run (`ProblemError`, exit code 3)."""
    stated, found = manifest["model"].get("tokenizer_sha256"), source.tokenizer_sha256()
    if stated not in (None, found):
        raise ProblemError([base_mismatch(manifest, "tokenizer", stated, found, file)], exit_code=REFUSED)


def base_mismatch(manifest: Mapping[str, Any], what: str, stated: str, found: str, file: str) -> Problem:
    """Return the problem of a base model whose `what` (tokenizer or weights) has another hash than the run's."""
    name, revision = manifest["model"]["name"], manifest["model"]["revision"]
    at = f" at revision {revision}" if revision else ""
    verb = "have" if what == "weights" else "has"
    said = f"The {what} of the base model here {verb} the SHA-256 {found}; the run used {stated}."
    then = f"Download {name}{at} and pass its folder with --model."
    return problem_of("TP765", file=file, pointer="/model", what=said, next=then)
