"""Settings that make a run smaller, each with what one gives for it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from trainer.config.tree import Config
from trainer.data.answers import EvalShape
from trainer.loop.attending import BLOCKWISE_FROM
from trainer.loop.task import Task
from trainer.model.model import resolve_remat
from trainer.objectives import build_objective
from trainer.planning.devices import ALL_TYPES, instead
from trainer.planning.estimate.part import total_bytes
from trainer.planning.estimate.programs import estimate
from trainer.planning.remat import CHEAPEST_FIRST
from trainer.planning.words import cost_of

NARROWER_STATES: dict[str, tuple[Literal["bfloat16", "int8"], ...]] = {
    "float32": ("bfloat16", "int8"),
    "bfloat16": ("int8",),
    "int8": (),
}
FEWEST_LENGTH = 256
FEWEST_CHUNK = 256
FEWEST_MLP_CHUNK = 2048


@dataclass(frozen=True, kw_only=True)
class Change:
    """One change of a configuration, of one or several settings that belong together."""

    settings: tuple[str, ...]
    """As `--set` takes them."""
    config: Config

    @property
    def costs(self) -> str:
        """What one gives for it."""
        return cost_of(self.settings[0])


def smaller_runs(config: Config, element_types: Collection[str] | None = None) -> Iterator[tuple[str, Config]]:
    """Yield single settings that may save memory, each with the configuration that has it.

    Args:
        config: the run.
        element_types: those of products that the device has. None: all.
    """
    for change in changes_of(config, element_types):
        if len(change.settings) == 1 and change.config.method.kind == config.method.kind:
            yield change.settings[0], change.config
    least = fewest_sequences(config)
    if config.batch.microbatch_size > least:
        yield f"batch.microbatch_size={least}", replace(config, batch=replace(config.batch, microbatch_size=least))


def savings(
    task: Task, *, platform: str, asked: EvalShape | None = None, element_types: Collection[str] | None = None
) -> list[tuple[str, int]]:
    """Return single settings and the bytes that each saves on each device by the closed form, the cheapest first.

    Args:
        task: the run.
        platform: cpu, gpu or tpu.
        asked: what the evaluation asks. None: nothing is evaluated.
        element_types: as of `smaller_runs`.
    """
    need = total_bytes(estimate(task, platform=platform, asked=asked))
    found = [
        (setting, need - total_bytes(estimate(task.changed(changed), platform=platform, asked=asked)))
        for setting, changed in smaller_runs(task.config, element_types)
    ]
    return [(setting, saved) for setting, saved in found if saved > 0]


def fewest_sequences(config: Config) -> int:
    """Return the smallest microbatch: one sequence, or a pair where the objective compares two."""
    return 2 if build_objective(config).takes_pairs else 1


def changes_of(config: Config, element_types: Collection[str] | None = None) -> Iterator[Change]:
    """Yield changes that may save memory, the cheapest first; each may be made of what another has left.

    Args:
        config: the run.
        element_types: those of products that the device has. None: all.
    """
    yield from _without_loss(config)
    yield from _smaller_microbatches(config)
    yield from _other_runs(config, element_types)


def _without_loss(config: Config) -> Iterator[Change]:
    """Yield changes after which the same thing is learned."""
    memory = config.memory
    if not memory.donate:
        yield _change("memory.donate=true", replace(config, memory=replace(memory, donate=True)))
    if memory.loss_chunk_tokens is None or memory.loss_chunk_tokens > FEWEST_CHUNK:
        fewer = replace(config, memory=replace(memory, loss_chunk_tokens=FEWEST_CHUNK))
        yield _change(f"memory.loss_chunk_tokens={FEWEST_CHUNK}", fewer)
    if config.evaluation.batch_size > 1:
        alone = replace(config, evaluation=replace(config.evaluation, batch_size=1))
        yield _change("evaluation.batch_size=1", alone)
    chunk = memory.mlp_chunk_tokens or config.batch.microbatch_size * config.data.max_length
    if chunk > FEWEST_MLP_CHUNK:
        in_chunks = replace(config, memory=replace(memory, mlp_chunk_tokens=FEWEST_MLP_CHUNK))
        yield _change(f"memory.mlp_chunk_tokens={FEWEST_MLP_CHUNK}", in_chunks)
    if memory.attention == "plain":
        yield _change("memory.attention=auto", replace(config, memory=replace(memory, attention="auto")))
    elif memory.attention == "auto" and config.data.max_length < BLOCKWISE_FROM:
        yield _change("memory.attention=blockwise", replace(config, memory=replace(memory, attention="blockwise")))


def _narrower(config: Config, element_types: Collection[str] | None) -> Iterator[Change]:
    """Yield 16 bits in place of 32, in a type that the device has."""
    precision = config.precision
    there = ALL_TYPES if element_types is None else element_types
    if precision.compute == "float32" != (narrow := instead("compute", config, there)):
        changed = replace(precision, compute=narrow)
        yield _change(f"precision.compute={narrow}", replace(config, precision=changed))
    if precision.params == "float32" != (narrow := instead("params", config, there)):
        changed = replace(precision, params=narrow)
        yield _change(f"precision.params={narrow}", replace(config, precision=changed))


def _other_runs(config: Config, element_types: Collection[str] | None) -> Iterator[Change]:
    """Yield changes that cost speed, precision or another look at what is learned."""
    memory, optimizer = config.memory, config.optimizer
    for kind in CHEAPEST_FIRST[CHEAPEST_FIRST.index(resolve_remat(config)) + 1 :]:
        yield _change(f"memory.remat={kind}", replace(config, memory=replace(memory, remat=kind)))
    yield from _narrower(config, element_types)
    if optimizer.max_grad_norm is not None:
        yield _change("optimizer.max_grad_norm=null", replace(config, optimizer=replace(optimizer, max_grad_norm=None)))
    if optimizer.name == "adamw":
        for state in NARROWER_STATES[optimizer.state]:
            yield _change(f"optimizer.state={state}", replace(config, optimizer=replace(optimizer, state=state)))
        wide = ("optimizer.state=float32",) if optimizer.state != "float32" else ()
        adafactor = replace(config, optimizer=replace(optimizer, name="adafactor", state="float32"))
        yield Change(settings=("optimizer.name=adafactor", *wide), config=adafactor)
    if config.method.kind == "full":
        yield _change("method.kind=lora", replace(config, method=replace(config.method, kind="lora")))
    if config.data.max_length > FEWEST_LENGTH:
        half_length = config.data.max_length // 2
        shorter = replace(config, data=replace(config.data, max_length=half_length))
        yield _change(f"data.max_length={half_length}", shorter)


def _smaller_microbatches(config: Config) -> Iterator[Change]:
    """Yield smaller microbatches with as many more of them, so that a step learns from as many rows."""
    size, times = config.batch.microbatch_size, 1
    while size % 2 == 0 and size > fewest_sequences(config):
        size, times = size // 2, times * 2
        accumulated = config.batch.accumulation_steps * times
        batch = replace(config.batch, microbatch_size=size, accumulation_steps=accumulated)
        settings = (f"batch.microbatch_size={size}", f"batch.accumulation_steps={accumulated}")
        yield Change(settings=settings, config=replace(config, batch=batch))


def _change(setting: str, config: Config) -> Change:
    return Change(settings=(setting,), config=config)
