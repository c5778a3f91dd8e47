"""A configuration held against a failure: what it should have needed, and which other program needs what the text says.

The text may be of another program than the configured one: a public run declared Adafactor, ran AdamW, donated nothing
and used one chip of eight, and its 28.59 GiB were blamed on the vocabulary. So the need is compared with that of the
configuration as it stands and with each of these changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Literal

from schemas.formats import size
from trainer.config.tree import Config
from trainer.loop.mesh import shapes_mesh
from trainer.loop.task import Task
from trainer.model.source import resolve_for_planning
from trainer.planning.changes import savings
from trainer.planning.estimate.part import ERROR_FRACTION, Part, total_bytes
from trainer.planning.estimate.programs import estimate
from trainer.planning.estimate.workload import ITEM_BYTES
from trainer.planning.out_of_memory.advice import Remedy
from trainer.planning.out_of_memory.explain import Account, AccountPart
from trainer.planning.out_of_memory.report import OutOfMemory
from trainer.planning.out_of_memory.roles import Sizes
from trainer.planning.words import cost_of, rank_of

OTHER_THAN_CONFIGURED = 0.15
"""From this distance on, the text is hardly that of the configured program; the estimate is within `ERROR_FRACTION`."""

CHIPS_OF_A_HOST = 8
FLOAT32_BYTES = 4
SHOWN = 3
"""Programs that the text may be of, before the rest is left out."""


@dataclass(frozen=True, kw_only=True)
class Variant:
    """The configured run, or one that differs from it in what programs often do otherwise."""

    config: Config
    devices: int
    small_moments: bool = False
    """AdamW's two numbers have the parameters' type, as in optax; here they are float32."""
    differs: tuple[str, ...] = ()
    """In words; none for the configured one."""


def account_of(config: Config, failure: OutOfMemory) -> Account:
    """Return what a configuration says to a failure.

    Raises:
        ProblemError: exit code 2; the model cannot be found, or the method cannot be built.
    """
    configured = Variant(config=config, devices=config.mesh.devices or 1)
    task = _task(configured, failure)
    parts = _estimated(task, failure)
    return Account(
        sizes=_sizes(task),
        parts=tuple(AccountPart(name=part.name, bytes=part.bytes, because=part.because) for part in parts),
        notes=tuple(_notes(configured, total_bytes(parts), failure)),
        changes=tuple(_remedies(task, failure)),
    )


def _task(variant: Variant, failure: OutOfMemory) -> Task:
    """Return the task of a variant; only its shapes are looked at, so no device is asked for."""
    source = resolve_for_planning(variant.config.model.name, variant.config.model.revision)
    return Task.of(variant.config, source, shapes_mesh(variant.devices), platform=_platform(failure))


def _estimated(task: Task, failure: OutOfMemory) -> tuple[Part, ...]:
    return estimate(task, platform=_platform(failure))


def _platform(failure: OutOfMemory) -> str:
    return {"tpu": "tpu", "vmem": "tpu", "smem": "tpu", "cpu": "cpu"}.get(failure.memory, "gpu")


def _sizes(task: Task) -> Sizes:
    spec, config = task.model.source.spec, task.config
    return Sizes(
        vocab=spec.vocab,
        embed=spec.embed,
        mlp=spec.mlp,
        heads=spec.heads,
        kv_heads=spec.kv_heads,
        head_dim=spec.head_dim,
        sequences=config.batch.microbatch_size,
        length=config.data.max_length,
        chunk_tokens=config.memory.loss_chunk_tokens,
    )


def _notes(configured: Variant, expected: int, failure: OutOfMemory) -> Iterator[str]:
    """Yield whether the failure is that of the configured program, and else of which one it may be."""
    devices = f" on each of {configured.devices} devices" if configured.devices > 1 else " on one device"
    yield f"As configured, the run needs about {size(expected)}{devices} (within {ERROR_FRACTION:.0%})."
    need = failure.need_bytes
    if need is None or abs(need - expected) <= OTHER_THAN_CONFIGURED * expected:
        return
    others = _others(configured, need, failure)
    if not others:
        yield f"The text says {size(need)}: it is of another program, or of something outside the step."
        return
    listed = "; or ".join(f"{' and '.join(variant.differs)} ({size(needs)})" for variant, needs in others[:SHOWN])
    yield (
        f"The text says {size(need)}, and that is what it needs {listed}. See whether the program that failed ran what "
        "is configured."
    )


def _others(configured: Variant, need: int, failure: OutOfMemory) -> list[tuple[Variant, int]]:
    """Return the variants that need what the text says, those with the fewest differences first."""
    found = []
    for variant in _variants(configured, failure):
        needs = _need(variant, failure)
        distance = abs(needs - need) / need
        if distance <= ERROR_FRACTION:
            found.append((len(variant.differs), distance, variant, needs))
    return [(variant, needs) for _, _, variant, needs in sorted(found, key=lambda each: each[:2])]


def _need(variant: Variant, failure: OutOfMemory) -> int:
    """Return what a variant needs; the estimate counts AdamW's numbers as float32."""
    parts = _estimated(_task(variant, failure), failure)
    need = total_bytes(parts)
    if variant.small_moments:
        moments = sum(part.bytes for part in parts if part.name == "opt_state")
        held = 1 if variant.config.memory.donate else 2
        need -= round(held * moments * (1 - ITEM_BYTES[variant.config.precision.params] / FLOAT32_BYTES))
    return need


def _variants(configured: Variant, failure: OutOfMemory) -> Iterator[Variant]:
    """Yield the configured run with its devices, its donation and its optimizer changed, in every combination."""
    config = configured.config
    counts = (configured.devices, 1, CHIPS_OF_A_HOST) if failure.memory == "tpu" else (configured.devices, 1)
    optimizers: tuple[tuple[Literal["adamw", "adafactor"], bool], ...] = (("adafactor", False), ("adamw", False))
    if config.precision.params != "float32":
        optimizers = (*optimizers, ("adamw", True))
    for devices, (name, small), donate in product(dict.fromkeys(counts), optimizers, (True, False)):
        differs = (
            *((f"with {name}",) if name != config.optimizer.name and not small else ()),
            *((f"with adamw in {config.precision.params}",) if small else ()),
            *(("without donation",) if config.memory.donate and not donate else ()),
            *(("with donation",) if donate and not config.memory.donate else ()),
            *((f"divided over {devices} devices",) if devices > configured.devices else ()),
            *(("on one device",) if devices < configured.devices else ()),
        )
        changed = replace(
            config, optimizer=replace(config.optimizer, name=name), memory=replace(config.memory, donate=donate)
        )
        if differs:
            yield Variant(config=changed, devices=devices, small_moments=small, differs=differs)


def _remedies(task: Task, failure: OutOfMemory) -> list[Remedy]:
    """Return the settings that free memory, cheapest first, each estimated anew."""
    missing = failure.missing_bytes
    found = []
    for setting, freed in savings(task, platform=_platform(failure)):
        enough = " That is enough alone." if missing is not None and freed >= missing else ""
        what = f"Set {setting.partition('=')[0]}.{enough}"
        found.append(Remedy(what=what, setting=setting, frees_bytes=freed, costs=cost_of(setting)))
    return sorted(found, key=lambda each: rank_of(each.setting or ""))
