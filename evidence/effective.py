"""Compare the declared settings of config.yaml with the effective values of the manifest, and planned with peak memory.

From schema 1.1 on the manifest has a group `effective` with the paths of the configuration. `MANIFEST_PATHS` is only
needed for manifests of version 1.0.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Literal

from schemas.reading import get_number, get_path, get_str

if TYPE_CHECKING:
    from evidence.run import Run

Scalar = str | int | float | bool | None

State = Literal["same", "differs", "open"]
"""open: a value is missing, or the program chose."""

MANIFEST_PATHS: Mapping[str, str] = {
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
"""Where a manifest contains the effective value of a setting outside of the group `effective`, as dotted paths."""

FLOAT32 = 1e-6
"""Relative error of a number that was stored as float32."""

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
"""Declared values that agree with any effective value. For other settings null is an ordinary value."""

_NOT_SETTINGS = ("schema_version", "name")


@dataclass(frozen=True, kw_only=True)
class EffectiveSetting:
    """A setting as declared in config.yaml and as read back by the program; None if null or missing.

    Attributes:
        declared: Declared value.
        effective: Effective value.
        state: Whether the two agree.
        pointer: JSON Pointer of the effective value in the manifest, or "" if it is missing.
        remark: Sentence that explains a difference, or None.
    """

    declared: Any
    effective: Any
    state: State
    pointer: str
    remark: str | None = None


def flatten(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested settings by dotted path: `{"a": {"b": 3}}` becomes `{"a.b": 3}`. Lists are not flattened."""
    flat: dict[str, Any] = {}
    for key, inner in value.items():
        if isinstance(inner, dict) and inner:
            flat |= flatten(inner, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = inner
    return flat


def scalar_settings(run: Run) -> dict[str, Scalar]:
    """Return the scalar settings of config.yaml by dotted path, such as `optimizer.learning_rate`."""
    # A list of runs holds thousands of these, so the names are interned.
    flat = flatten(run.config or {})
    return {sys.intern(name): value for name, value in flat.items() if not isinstance(value, list | dict)}


def effective_settings(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return the effective settings of a valid manifest by dotted path; empty before the train step is compiled."""
    if (group := manifest.get("effective")) is not None:
        return {key: value for key, value in flatten(group).items() if key not in _NOT_SETTINGS}
    return settings_in_manifest(manifest)


def settings_in_manifest(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return the effective settings that a valid manifest contains elsewhere, at `MANIFEST_PATHS`."""
    found: dict[str, Any] = {}
    for key, path in MANIFEST_PATHS.items():
        *groups, name = path.split(".")
        group = get_path(manifest, *groups) if groups else manifest
        # Some backends do not report which memory is reused; donation is then unknown.
        if isinstance(group, Mapping) and name in group and not (group[name] is None and key == "memory.donate"):
            found[key] = group[name]
    return found


def manifest_pointer(manifest: Mapping[str, Any], key: str) -> str:
    """Return the JSON Pointer of the effective value of a setting in a manifest."""
    path = f"effective.{key}" if manifest.get("effective") is not None else MANIFEST_PATHS[key]
    return "/" + path.replace(".", "/")


def compare_settings(
    config: Mapping[str, Any] | None, manifest: Mapping[str, Any] | None
) -> dict[str, EffectiveSetting]:
    """Compare every declared or effective setting of two valid documents, in the order of the configuration."""
    declared = flatten(dict(config or {}))
    effective = effective_settings(manifest or {})
    return {
        key: _compare(key, declared, effective, manifest_pointer(manifest or {}, key) if key in effective else "")
        for key in dict.fromkeys([*declared, *effective])
    }


def _compare(key: str, declared: Mapping[str, Any], effective: Mapping[str, Any], pointer: str) -> EffectiveSetting:
    asked: Any = declared.get(key)
    found: Any = effective.get(key)
    state: State = "same"
    remark = None
    is_open = key in _LEFT_TO_THE_PROGRAM and (asked == _LEFT_TO_THE_PROGRAM[key] or found is None)
    if key not in declared or key not in effective or is_open:
        state = "open"
    elif key == "optimizer.learning_rate":
        state = "same" if _is_peak(asked, found, effective) else "differs"
    elif not values_agree(key, asked, found):
        state = "differs"
    if key == "mesh.shard_params" and asked and found is False:
        # One device has nothing to shard over; several devices may find no array that can be divided.
        single = effective.get("mesh.devices") == 1
        state = "open" if single else state
        remark = "Parameters cannot be sharded over one device." if single else "No array could be sharded."
    return EffectiveSetting(declared=asked, effective=found, state=state, pointer=pointer, remark=remark)


def values_agree(key: str, declared: Any, effective: Any) -> bool:
    """Return whether an effective value equals a declared one, up to float32 rounding and the folder of a dataset."""
    if key == "data.dataset" and isinstance(declared, str) and isinstance(effective, str):
        return PurePosixPath(declared).name == PurePosixPath(effective).name
    if float in (type(declared), type(effective)) and {type(declared), type(effective)} <= {int, float}:
        return bool(abs(declared - effective) <= FLOAT32 * abs(declared))
    return type(declared) is type(effective) and bool(declared == effective)


def _is_peak(declared: float, peak: float, effective: Mapping[str, Any]) -> bool:
    """Return whether a peak follows from the learning rate; a warm-up longer than the run stays below it."""
    is_reached = effective.get("optimizer.warmup_steps", 0) <= effective.get("limits.steps", 0)
    return peak <= declared * (1 + FLOAT32) and (not is_reached or peak >= declared * (1 - FLOAT32))


PROCESS_ERROR = 0.3
"""Relative error of the planned memory of a CPU process (at most 28 % in benchmarks/results/observed_memory.json)."""


@dataclass(frozen=True, kw_only=True)
class ObservedMemory:
    """Peak memory of a run and the plan for it.

    Attributes:
        planned_bytes: Planned bytes, or None if the plan lacks them.
        error_fraction: Relative error of the plan, or None if unknown.
        of: Measured memory: `arrays on a device` or `the process`.
        part: The part of the run with the peak, or None if unknown.
    """

    observed_bytes: float
    planned_bytes: float | None
    error_fraction: float | None
    of: str
    part: str | None


def observed_memory(plan: Mapping[str, Any] | None, manifest: Mapping[str, Any] | None) -> ObservedMemory | None:
    """Return the observed peak memory of a run, or None if it was not measured.

    Manifests of version 1.1 and older contain figures of CPUs that were partly taken from the plan; they are ignored.
    """
    result = get_path(manifest, "result")
    planned, error = get_number(plan, "need_bytes"), get_number(plan, "error_fraction")
    observed, part = get_number(result, "observed_memory", "bytes"), get_str(result, "observed_memory", "part")
    of = "arrays on a device"
    if observed is not None and get_str(result, "observed_memory", "source") == "process_growth":
        beside, devices = get_number(plan, "target", "process_bytes"), get_number(plan, "target", "devices")
        planned = None if planned is None or beside is None or devices is None else planned * devices + beside
        error, of = PROCESS_ERROR, "the process"
    if observed is None and get_str(result, "peak_arrays", "source") == "reported by the device":
        observed, part = get_number(result, "peak_arrays", "bytes"), get_str(result, "peak_arrays", "program")
    if observed is None and get_str(manifest, "devices", "platform") not in (None, "cpu"):
        observed = get_number(result, "peak_memory_bytes")
    if observed is None:
        return None
    return ObservedMemory(observed_bytes=observed, planned_bytes=planned, error_fraction=error, of=of, part=part)
