"""Which model a smoke run of a configuration takes: its own if that fits here and is quick, else its shape made small.

What is chosen is written into the configuration that the run records, so that the run can be repeated anywhere.
"""

from __future__ import annotations

from dataclasses import replace

from evidence.targets import Target
from schemas.problems import ProblemError
from trainer.config.tree import Config
from trainer.data.answers import EvalShape
from trainer.loop.mesh import shapes_mesh
from trainer.loop.task import Task
from trainer.model.decoder import parameter_count
from trainer.model.source import resolve_for_planning
from trainer.planning.devices import as_target, choose_devices
from trainer.planning.duration.roofline import LIKELY_EFFICIENCY
from trainer.planning.estimate.part import total_bytes
from trainer.planning.estimator import Estimator
from trainer.planning.gpu_memory import available_bytes
from trainer.planning.subject import assumed_asked, devices_used

QUICK_SECONDS = 120.0
"""A smoke run that computes longer than this takes a model made small."""

CPU_FLOPS = 5e10
"""Operations a second assumed of a machine that the table does not know: two cores of a CPU reach 5e10 to 2e11."""

STEP_OPERATIONS = 8
"""For each parameter and token: 2 forward, 4 backward, 2 recomputed."""


def rehearsed_here(config: Config, *, device_is_stated: bool) -> Config:
    """Return a configuration for this machine; other than with `model.shape: auto` as it is.

    Args:
        config: of the run.
        device_is_stated: whether a flag asked for the device: then it is refused if it is absent. A configuration for a
            device that is not here is rehearsed on what is.

    Raises:
        ProblemError: exit code 3; there are too few devices.
    """
    if config.model.shape != "auto":
        return config
    isa = config.precision.cpu_isa
    try:
        devices = choose_devices(config.mesh.device, config.mesh.devices, isa)
    except ProblemError:
        if device_is_stated:
            raise
        config = replace(config, mesh=replace(config.mesh, device="auto", devices=None))
        devices = choose_devices("auto", None, isa)
    return rehearsed(config, as_target(devices))


def rehearsed(config: Config, target: Target) -> Config:
    """Return a configuration with `model.shape: auto` decided for a target.

    A model that cannot be found, or settings that do not go together, leave it the model's own: the run says what is
    wrong.
    """
    if config.model.shape != "auto":
        return config
    own = replace(config, model=replace(config.model, shape="own"))
    try:
        small = not is_fit_and_quick(own, target)
    except ProblemError:
        return own
    return made_small(own) if small else own


def is_fit_and_quick(config: Config, target: Target) -> bool:
    """Return whether a run fits a target by the sums, and computes no longer than `QUICK_SECONDS`."""
    devices = devices_used(config, target)
    source = resolve_for_planning(config.model.name, config.model.revision)
    task = Task.of(config, source, shapes_mesh(devices), platform=target.platform)
    asked, available = assumed_asked(config), available_bytes(target)
    asking = Estimator(platform=target.platform, available_bytes=available, why_not="a smoke run is looked for")
    need = max(total_bytes(answer.parts) for answer in asking.programs(task, asked) if answer.name != "export")
    seconds = computing_seconds(
        config, target, parameters=parameter_count(task.model.base), devices=devices, asked=asked
    )
    return (available is None or need <= available) and seconds <= QUICK_SECONDS


def computing_seconds(
    config: Config, target: Target, *, parameters: int, devices: int, asked: EvalShape | None = None
) -> float:
    """Return the seconds that steps and evaluations compute, by the operations of a model of that size.

    Two steps of 32 sequences of 128 tokens with 1 million parameters are 8 · 1e6 · 8,192 = 6.6e10 operations: 1.3 s on
    a CPU. The two evaluations compute a prompt's and an answer's tokens for each item.
    """
    batch, data, evaluation = config.batch, config.data, config.evaluation
    learned = config.limits.steps * batch.microbatch_size * batch.accumulation_steps * devices * data.max_length
    operations = STEP_OPERATIONS * parameters * learned
    if asked is not None:
        answered = asked.prompts * (asked.longest_tokens + evaluation.samples * evaluation.max_new_tokens)
        operations += 2 * parameters * answered * (2 if evaluation.baseline else 1)
    known = target.peak_flops.get(config.precision.compute)
    return operations / (devices * known * LIKELY_EFFICIENCY if known else CPU_FLOPS)


def made_small(config: Config) -> Config:
    """Return a smoke run's configuration with the model's shape made small, and with as much less to do."""
    batch, evaluation = config.batch, config.evaluation
    return replace(
        config,
        model=replace(config.model, shape="small", weights=None),
        data=replace(config.data, generated_rows=min(config.data.generated_rows, 1_000)),
        batch=replace(
            batch, microbatch_size=min(batch.microbatch_size, 4), accumulation_steps=min(batch.accumulation_steps, 2)
        ),
        evaluation=replace(
            evaluation, max_new_tokens=min(evaluation.max_new_tokens, 16), batch_size=min(evaluation.batch_size, 50)
        ),
    )
