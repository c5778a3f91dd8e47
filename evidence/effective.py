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

import numpy as np

from schemas.formats import size
from schemas.reading import get_number, get_path, get_str

if TYPE_CHECKING:
    from evidence.run import Run

Scalar = str | int | float | bool | None
State = Literal["same", "differs", "open"]  # open: a value is missing, or the program chose

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
FLOAT32 = 1e-6  # relative error of a number that was stored as float32


@dataclass(frozen=True, kw_only=True)
class EffectiveSetting:
    """A setting as declared in config.yaml and as read back by the program; None if null or missing.

    `pointer` leads to the effective value in the manifest, or is "" if it is missing.
    """

    declared: Any
    effective: Any
    state: State
    pointer: str


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
    return "/" + (f"effective.{key}" if manifest.get("effective") else MANIFEST_PATHS[key]).replace(".", "/")


def compare_settings(
    config: Mapping[str, Any] | None, manifest: Mapping[str, Any] | None
) -> dict[str, EffectiveSetting]:
    """Compare every declared or effective setting of two valid documents, in the order of the configuration."""
    declared, effective = flatten(dict(config or {})), effective_settings(manifest or {})
    compared = {}
    for key in dict.fromkeys([*declared, *effective]):
        asked, found = declared.get(key), effective.get(key)
        agrees = values_agree(key, asked, found)
        is_open = key in _LEFT_TO_THE_PROGRAM and (asked == _LEFT_TO_THE_PROGRAM[key] or found is None)
        if key == "mesh.shard_params" and effective.get("mesh.devices") == 1:
            is_open = asked is True and found is False  # One device has nothing to shard over.
        if key == "optimizer.learning_rate" and asked is not None and found is not None:
            # The manifest has the peak, and a warm-up longer than the run stays below it.
            is_reached = effective.get("optimizer.warmup_steps", 0) <= effective.get("limits.steps", 0)
            agrees = found <= asked * (1 + FLOAT32) and (not is_reached or found >= asked * (1 - FLOAT32))
        is_unknown = key not in declared or key not in effective or is_open
        state: State = "open" if is_unknown else "same" if agrees else "differs"
        pointer = manifest_pointer(manifest or {}, key) if key in effective else ""
        compared[key] = EffectiveSetting(declared=asked, effective=found, state=state, pointer=pointer)
    return compared


def values_agree(key: str, declared: Any, effective: Any) -> bool:
    """Return whether an effective value equals a declared one, up to float32 rounding and the folder of a dataset."""
    if key == "data.dataset" and isinstance(declared, str) and isinstance(effective, str):
        return PurePosixPath(declared).name == PurePosixPath(effective).name
    if float in (type(declared), type(effective)) and {type(declared), type(effective)} <= {int, float}:
        return bool(abs(declared - effective) <= FLOAT32 * abs(declared))
    return type(declared) is type(effective) and bool(declared == effective)


PROCESS_ERROR = 0.3
"""Relative error of the planned memory of a CPU process (at most 28 % in benchmarks/results/observed_memory.json)."""

MemoryScope = Literal["one device", "process above baseline", "whole process"]
"""What a peak was measured of: the fullest device, the growth of a process during the run, or a process as a whole."""


@dataclass(frozen=True, kw_only=True)
class PeakMemory:
    """Peak memory of a run, in its `part` (such as `train`) if known. Peaks of different scopes cannot be compared."""

    bytes: int
    scope: MemoryScope
    part: str | None = None

    def as_text(self) -> str:
        """Return the peak with its scope: `308.4 MiB, process above baseline`."""
        return f"{size(self.bytes)}, {self.scope}"


def typical(values: np.ndarray) -> float | None:
    """Return the median of a metric, without its first row if there are others, because that includes a warm-up.

    The speed of a run is this of `tokens_per_second`, and its step time this of `step_seconds`.
    """
    values = values[np.isfinite(values)]
    return float(np.median(values[1:] if len(values) > 1 else values)) if len(values) else None


def peak_memory(manifest: Mapping[str, Any] | None) -> PeakMemory | None:
    """Return the peak memory of a run, or None if it was not measured.

    CPU figures of `peak_arrays`, which versions 1.0 and 1.1 wrote, were partly taken from the plan and are ignored.
    """
    result = get_path(manifest, "result")
    is_cpu = get_str(manifest, "devices", "platform") == "cpu"
    if (observed := get_number(result, "observed_memory", "bytes")) is not None:
        is_growth = get_str(result, "observed_memory", "source") == "process_growth"
        scope: MemoryScope = "process above baseline" if is_growth else "one device"
        return PeakMemory(bytes=int(observed), scope=scope, part=get_str(result, "observed_memory", "part"))
    arrays = get_number(result, "peak_arrays", "bytes")
    if arrays is not None and get_str(result, "peak_arrays", "source") == "reported by the device":
        return PeakMemory(bytes=int(arrays), scope="one device", part=get_str(result, "peak_arrays", "program"))
    if (peak := get_number(result, "peak_memory_bytes")) is not None:
        return PeakMemory(bytes=int(peak), scope="whole process" if is_cpu else "one device")
    return None


@dataclass(frozen=True, kw_only=True)
class PlannedMemory:
    """Planned peak memory, its relative error if that is known, and the part of Python and libraries."""

    bytes: float
    error_fraction: float | None
    process_bytes: float = 0

    def as_text(self) -> str:
        """Format the memory: `502.2 MiB, 450.0 MiB of it for the process`."""
        return size(self.bytes) + (f", {size(self.process_bytes)} of it for the process" if self.process_bytes else "")


def planned_memory(plan: Mapping[str, Any] | None, scope: MemoryScope) -> PlannedMemory | None:
    """Return the plan for a peak of this scope, or None. A whole process, with Python and libraries, is not planned."""
    need, error = get_number(plan, "need_bytes"), get_number(plan, "error_fraction")
    if need is None or scope == "whole process":
        return None
    if scope == "one device":
        return PlannedMemory(bytes=need, error_fraction=error)
    process, devices = get_number(plan, "target", "process_bytes"), get_number(plan, "target", "devices")
    if process is None or devices is None:
        return None
    return PlannedMemory(bytes=need * devices + process, error_fraction=PROCESS_ERROR, process_bytes=process)
