"""The configuration of a run three times over: declared, effective, default.

Declared is what `config.yaml` asked for, effective what the manifest read back from the built program, default what the
schema gives a key that is left out. Where effective and declared differ, the run did not do what it was told.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dashboard.shared.config import form
from schemas.reading.values import at

Document = Mapping[str, Any] | None

EFFECTIVE: Mapping[str, tuple[str, ...]] = {
    "mode": ("mode",),
    "seed": ("training", "seed"),
    "model.name": ("model", "name"),
    "model.revision": ("model", "revision"),
    "model.weights": ("model", "weights"),
    "data.dataset": ("dataset", "name"),
    "data.generated_rows": ("dataset", "generated_rows"),
    "data.max_length": ("training", "sequence_length"),
    "method.kind": ("training", "method"),
    "optimizer.name": ("training", "optimizer", "name"),
    "optimizer.learning_rate": ("training", "schedule", "peak_learning_rate"),
    "optimizer.schedule": ("training", "schedule", "name"),
    "optimizer.warmup_steps": ("training", "schedule", "warmup_steps"),
    "batch.microbatch_size": ("training", "microbatch_size"),
    "batch.accumulation_steps": ("training", "accumulation_steps"),
    "precision.params": ("model", "dtypes", "params"),
    "precision.compute": ("model", "dtypes", "compute"),
    "memory.remat": ("training", "remat"),
    "memory.loss_chunk_tokens": ("training", "loss_chunk_tokens"),
    "memory.donate": ("training", "donation", "effective"),
    "mesh.device": ("devices", "platform"),
    "mesh.devices": ("devices", "count"),
    "mesh.shard_params": ("training", "mesh", "shard_params"),
    "limits.steps": ("training", "steps_planned"),
}
"""Where the manifest states what came of a key; the other keys have no effect that it reads back."""

_LEFT_OPEN = ("auto", None)
"""Declared values that leave the choice to the program, so that any effective value agrees with them."""

_ON_MANY_DEVICES = frozenset({"mesh.shard_params"})
"""Keys without effect on a single device, where the program reads back that nothing was done."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One key of the configuration in its three values, as text; None where there is no such value."""

    key: str
    title: str
    declared: str | None
    effective: str | None
    default: str | None
    differs: bool
    is_changed: bool


def settings(config: Document, manifest: Document) -> list[Setting]:
    """Return every key of the configuration in the order of its schema."""
    return [_setting(field, config, manifest) for field in form.fields()]


def _setting(field: form.Field, config: Document, manifest: Document) -> Setting:
    declared = at(config, *field.path)
    is_declared = config is not None and form.states(config, field.path)
    place = EFFECTIVE.get(field.dotted)
    effective = at(manifest, *place) if place is not None else None
    comparable = is_declared and effective is not None and declared not in _LEFT_OPEN
    if field.dotted in _ON_MANY_DEVICES and at(manifest, "devices", "count") == 1:
        comparable = False
    return Setting(
        key=field.dotted,
        title=field.title,
        declared=shown(declared) if is_declared else None,
        effective=None if effective is None else shown(effective),
        default=None if field.required else shown(field.default),
        differs=comparable and not _same(declared, effective),
        is_changed=is_declared and declared != field.default,
    )


def shown(value: Any) -> str:
    """Return a configuration value as YAML writes it, with every digit: `null`, `true`, `0.001`, `1.0e-06`."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and math.isfinite(value):
        digits, exponent, power = repr(value).partition("e")
        # Without a point, YAML takes 1e-06 for a word.
        return f"{digits}{'.0' if exponent and '.' not in digits else ''}{exponent}{power}"
    return str(value)


def _same(declared: Any, effective: Any) -> bool:
    """Return whether two values are equal, a rounded float being equal to the number it stands for."""
    if isinstance(declared, float) or isinstance(effective, float):
        try:
            return abs(float(declared) - float(effective)) <= 1e-6 * abs(float(declared))
        except (TypeError, ValueError):
            return False
    return bool(declared == effective)
