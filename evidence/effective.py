"""What was declared and what came of it: the keys of config.yaml beside the effective values of the manifest.

From schema 1.1 on the manifest has a group `effective` with the configuration's own paths, so that both are one tree
and a new key needs no table. `PLACES` is the table for manifests of 1.0. The checker, the comparison and the pages read
what is reported here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Literal

from evidence.records.by_name import flatten

State = Literal["same", "differs", "open"]
"""open: nothing to compare, because one side states no value, or the choice was left to the program."""

PLACES: Mapping[str, str] = {
    "mode": "mode",
    "seed": "training.seed",
    "model.name": "model.name",
    "model.revision": "model.revision",
    "model.weights": "model.weights",
    "data.dataset": "dataset.name",
    "data.generated_rows": "dataset.generated_rows",
    "data.max_length": "training.sequence_length",
    "method.kind": "training.method",
    "optimizer.name": "training.optimizer.name",
    "optimizer.state": "training.optimizer.state",
    "optimizer.learning_rate": "training.schedule.peak_learning_rate",
    "optimizer.schedule": "training.schedule.name",
    "optimizer.warmup_steps": "training.schedule.warmup_steps",
    "batch.microbatch_size": "training.microbatch_size",
    "batch.accumulation_steps": "training.accumulation_steps",
    "precision.params": "model.dtypes.params",
    "precision.compute": "model.dtypes.compute",
    "memory.remat": "training.remat",
    "memory.layers": "training.layers",
    "memory.attention": "training.attention",
    "memory.loss_chunk_tokens": "training.loss_chunk_tokens",
    "memory.donate": "training.donation.effective",
    "mesh.device": "devices.platform",
    "mesh.devices": "devices.count",
    "mesh.shard_params": "training.mesh.shard_params",
    "limits.steps": "training.steps_planned",
}
"""Where a manifest states what came of a key beside the group `effective`, which 1.0 lacks, as dotted paths."""

FLOAT32 = 1e-6
"""Relative error of a number that went through float32."""

_LEFT_TO_THE_PROGRAM = {
    "model.revision": None,
    "model.weights": None,
    "memory.remat": "auto",
    "memory.layers": "auto",
    "memory.attention": "auto",
    "mesh.device": "auto",
    "mesh.devices": None,
    "data.template": None,
    "evaluation.answer": None,
    "evaluation.compare": None,
    "objective.epsilon_high": None,
}
"""Declared values with which any effective one agrees; elsewhere null is a value like others."""


@dataclass(frozen=True, kw_only=True)
class EffectiveSetting:
    """One key of the configuration: what was configured and what came of it."""

    declared: Any
    """Value in config.yaml. None: null, or the key is left out."""
    effective: Any
    """Value that the program read back. None: null, or it reads none back."""
    state: State
    """Whether the two agree."""
    pointer: str
    """JSON Pointer of the effective value in the manifest; empty where it states none."""
    remark: str | None = None
    """What a reader must know to understand the difference. None: nothing."""


def effective_of(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return the effective settings of a valid manifest by the dotted keys of the configuration.

    A key that the program does not read back is left out. Before the train step is compiled there is no such group.
    """
    if (group := manifest.get("effective")) is not None:
        return {key: value for key, value in flatten(group).items() if key not in _NOT_SETTINGS}
    return stated_elsewhere(manifest)


def stated_elsewhere(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the other groups of a valid manifest state of the effective settings, by key (`PLACES`)."""
    stated: dict[str, Any] = {}
    for key, place in PLACES.items():
        value: Any = manifest
        for name in place.split("."):
            value = value.get(name, _MISSING) if isinstance(value, Mapping) else _MISSING
        # A backend that does not state which memory is reused leaves donation unknown.
        if value is not _MISSING and not (value is None and key == "memory.donate"):
            stated[key] = value
    return stated


def pointer_of(manifest: Mapping[str, Any], key: str) -> str:
    """Return where a manifest states what came of a key: a JSON Pointer."""
    return "/" + ("effective." + key if manifest.get("effective") is not None else PLACES[key]).replace(".", "/")


def agreements(config: Mapping[str, Any] | None, manifest: Mapping[str, Any] | None) -> dict[str, EffectiveSetting]:
    """Return each key that is declared or effective, in the order of the configuration, with whether both agree.

    Args:
        config: A valid config.yaml. None: it is missing.
        manifest: A valid run_manifest.json. None: it is missing.
    """
    declared = flatten(dict(config or {}))
    effective = effective_of(manifest or {})
    return {
        key: _agreement(key, declared, effective, pointer_of(manifest or {}, key) if key in effective else "")
        for key in dict.fromkeys([*declared, *effective])
    }


def _agreement(key: str, declared: Mapping[str, Any], effective: Mapping[str, Any], pointer: str) -> EffectiveSetting:
    asked: Any = declared.get(key)
    came: Any = effective.get(key)
    state: State = "same"
    remark = None
    if key not in declared or key not in effective or _is_left_open(key, asked, came):
        state = "open"
    elif key == "optimizer.learning_rate":
        state = "same" if _is_peak(asked, came, effective) else "differs"
    elif not alike(key, asked, came):
        state = "differs"
    if key == "mesh.shard_params" and asked and came is False:
        # A single device has nothing to divide parameters over; several may find no array that can be divided.
        single = effective.get("mesh.devices") == 1
        state = "open" if single else state
        remark = "One device: there is nothing to divide." if single else "No array was divided over the devices."
    return EffectiveSetting(declared=asked, effective=came, state=state, pointer=pointer, remark=remark)


def alike(key: str, declared: Any, effective: Any) -> bool:
    """Return whether an effective value is the declared one: float32 rounds, and a manifest names a data set's file."""
    if key == "data.dataset" and isinstance(declared, str) and isinstance(effective, str):
        return PurePosixPath(declared).name == PurePosixPath(effective).name
    if float in (type(declared), type(effective)) and {type(declared), type(effective)} <= {int, float}:
        return bool(abs(declared - effective) <= FLOAT32 * abs(declared))
    return type(declared) is type(effective) and bool(declared == effective)


def _is_left_open(key: str, declared: Any, effective: Any) -> bool:
    return key in _LEFT_TO_THE_PROGRAM and (declared == _LEFT_TO_THE_PROGRAM[key] or effective is None)


def _is_peak(asked: float, peak: float, effective: Mapping[str, Any]) -> bool:
    """Return whether a peak follows from the learning rate; a warm-up longer than the run only stays below it."""
    reached = effective.get("optimizer.warmup_steps", 0) <= effective.get("limits.steps", 0)
    return peak <= asked * (1 + FLOAT32) and (not reached or peak >= asked * (1 - FLOAT32))


_NOT_SETTINGS = ("schema_version", "name")

_MISSING = object()
