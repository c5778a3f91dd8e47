"""The train state: its shapes, and the initial one, from random parameters or a model's files.

Parameters never exist twice: random ones are computed in place, and files are read onto the devices tensor by tensor.
A state is passed in a one-element list, so that the loop has the only reference and donation can free it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import jax
from safetensors import SafetensorError
from safetensors.numpy import load_file

from evidence import layout
from schemas.formats import size
from schemas.problems import ProblemError, problem_of
from trainer.config.load import load_config
from trainer.config.tree import OptimizerConfig
from trainer.distributed import place
from trainer.loop.compilation import Compiled, Program, jitted, tree_bytes
from trainer.loop.optimizer import build_optimizer
from trainer.loop.step import TrainState, first_state, initial_loss_scale, initial_skipped_steps
from trainer.loop.task import Task, add_shardings, copy_reference_params
from trainer.model.decoder import flatten, params_sha256
from trainer.model.layers import is_lora
from trainer.model.load import load_params
from trainer.model.model import choose_method, partition
from trainer.model.source import ModelSource
from trainer.model.stacks import Params, device_copy, stack_params, stacked_names

REFUSED = 3
"""Exit code if the base model is not the one of a run."""
MAX_HEADER_BYTES = 100 << 20
"""Largest header of a safetensors file, as the format limits it."""


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


def draw_program(task: Task, wanted: Callable[[str], bool] = lambda name: True) -> Program:
    """Return the program that draws the `wanted` initial parameters that no file has, equal for equal seeds."""
    reads_weights = task.model.reads_weights
    names = {name for name in task.shapes if wanted(name) and (is_lora(name) or not reads_weights)}
    decoder = replace(task.model.decoder, layer_groups=task.model.layer_groups if task.is_scanned else ())

    def draw() -> Params:
        params = flatten(decoder.build(jax.random.key(task.config.seed)))[1]
        return {name: value for name, value in params.items() if name in names}

    shapes = add_shardings({name: shape for name, shape in task.shapes.items() if name in names}, task)
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
    drawn = {"draw": draw_program(task)} if task.model.adapters or not task.model.reads_weights else {}
    return {name: program.compile() for name, program in (drawn | {"start": start_program(task)}).items()}


def initial_state(
    task: Task, programs: Mapping[str, Compiled] | None = None, on_start: Callable[[], None] = lambda: None
) -> tuple[list[TrainState], Params]:
    """Return the initial state in a one-element list, and the frozen parameters.

    `programs` are from `compile_initial`; `initial_params` describes `on_start` and errors.
    """
    programs = programs or compile_initial(task)
    trained, frozen = partition(task.model.method, initial_params(task, programs.get("draw"), on_start=on_start))
    if task.reference:
        frozen |= copy_reference_params(trained)  # before they are donated
    state: TrainState = programs["start"].call(trained)
    return [state], frozen


def initial_params(
    task: Task,
    draw: Compiled | None = None,
    *,
    wanted: Callable[[str], bool] = lambda name: True,
    on_start: Callable[[], None] = lambda: None,
) -> Params:
    """Return the initial parameters whose names are `wanted` on their devices, sorted by name.

    They are read from files, and the others drawn by `draw` or a program compiled here; `on_start` is called in
    between. Raises `ProblemError` with exit code 2 if the model's files cannot be used.
    """
    model, params = task.model, Params()
    if model.reads_weights:
        read = load_params(model.source, add_shardings(model.base, task), on_devices=not task.is_scanned)
        read = {name: value for name, value in read.items() if wanted(name)}
        shapes = add_shardings(task.shapes, task).items()
        params = stack_params(read, {name: shape for name, shape in shapes if stacked_names(name)[0] in read})
    on_start()
    if model.adapters or not model.reads_weights:
        params |= (draw or draw_program(task, wanted).compile()).call()
    is_whole = model.source.full_spec is None  # no file fits a model that was made small
    if task.config.method.adapter is not None and is_whole and any(map(wanted, model.trained)):
        params |= stack_params(_initial_adapter(task), add_shardings(task.trained, task))
    return dict(sorted(params.items()))


def load_trained_params(path: Path, task: Task) -> Params | None:
    """Load the trained parameters of a run folder, or of their file, or return None if it is missing.

    Raises `ProblemError` with exit code 2 if the file is not in safetensors format or does not match the run.
    """
    path = path / layout.TRAINED_PARAMS if path.is_dir() else path
    shapes = add_shardings(task.model.trained, task)
    if not path.is_file():  # a pipe or device would never end
        return None
    try:
        return read_arrays(path, shapes)
    except (SafetensorError, ValueError, KeyError, OverflowError, AttributeError) as error:  # NumPy lacks float8 types
        what = f"{layout.TRAINED_PARAMS} cannot be read: {error}."
        raise ProblemError([problem_of("TP056", file=str(path), what=what)], exit_code=2) from error


def read_arrays(path: Path, shapes: Mapping[str, Any]) -> Params:
    """Read the arrays of a safetensors file onto devices.

    Raises SafetensorError, ValueError or KeyError if the file is damaged, too large, or has other arrays than `shapes`.
    """
    max_bytes = tree_bytes(shapes)
    if (found := path.stat().st_size) > max_bytes + MAX_HEADER_BYTES:
        message = f"it has {size(found)}, and its arrays have {size(max_bytes)}"
        raise ValueError(message)
    arrays = load_file(path)
    read, wanted = (
        {name: (*value.shape, str(value.dtype)) for name, value in each.items()} for each in (arrays, shapes)
    )
    if others := sorted(name for name in {*read, *wanted} if read.get(name) != wanted.get(name)):
        message = f"{len(others):,} arrays do not match the run, the first is {others[0]}"
        raise ValueError(message)
    return {name: device_copy(place(arrays[name], shape.sharding)) for name, shape in shapes.items()}


def _initial_adapter(task: Task) -> Params:
    """Load the adapter that training starts from; refuse another scale (`ProblemError`, exit code 2)."""
    path = Path(str(task.config.method.adapter))
    params = load_trained_params(path, task)
    what = "" if params else f"method.adapter is {path}, which is not on this machine."
    if (config := path.parent / layout.CONFIG).is_file():
        before = choose_method(load_config(config)).adapters(task.model.source)
        if {each.scale for each in before.values()} != {each.scale for each in task.model.adapters.values()}:
            what = f"method.alpha, rank and rslora give another scale than the adapter in {path} has."
    if what or params is None:
        raise ProblemError([problem_of("TP047", file=task.config.name, pointer="/method", what=what)], exit_code=2)
    return params


def refuse_other_base(manifest: Mapping[str, Any], task: Task, *, file: str, trains: bool) -> None:
    """Refuse a base model with another tokenizer or other weights than a run's (`ProblemError`, exit code 3).

    Only frozen parameters are compared, or all initial ones if it `trains` again. `file` names the run in problems.
    """
    model, weights = manifest["model"], None
    if model["weights"] == "pretrained" and task.model.reads_weights:
        if "frozen_sha256" in model and task.model.frozen:
            frozen = initial_params(task, wanted=lambda name: not task.model.method.is_trained(name))
            weights = model["frozen_sha256"], params_sha256(frozen)
        elif trains and manifest["parent"] is None:
            weights = model["weights_sha256"], params_sha256(initial_params(task))
    refuse_other_tokenizer(manifest, task.model.source, file=file, weights=weights)


def refuse_other_tokenizer(
    manifest: Mapping[str, Any], source: ModelSource, *, file: str, weights: tuple[str, str] | None = None
) -> None:
    """Refuse a tokenizer that differs from a run's (`ProblemError`, exit code 3).

    `weights` are hashes of the run's weights and of the weights here, if they are compared too.
    """
    model, problems = manifest["model"], []
    tokenizer = model.get("tokenizer_sha256"), source.tokenizer_sha256()
    compared = {"tokenizer of the base model here has": tokenizer, "weights of the base model here have": weights}
    for what, hashes in compared.items():
        stated, found = hashes or (None, None)
        if stated not in (None, found):
            at = f" at revision {model['revision']}" if model["revision"] else ""
            said = f"The {what} the SHA-256 {found}; the run used {stated}."
            then = f"Download {model['name']}{at} and pass its folder with --model."
            problems.append(problem_of("TP765", file=file, pointer="/model", what=said, next=then))
    if problems:
        raise ProblemError(problems, exit_code=REFUSED)
