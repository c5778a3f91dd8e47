"""The configuration of a run three times over: declared, effective, default.

Declared is what `config.yaml` requested, effective what the manifest read back from the built program, default what the
schema gives a key that is left out. Where effective and declared differ, the run did not do what it was configured to
do.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dashboard.shared.config import form
from evidence.effective import EffectiveSetting, compare_settings
from evidence.run import Run
from schemas.reading import get_path

Document = Mapping[str, Any] | None


@dataclass(frozen=True, kw_only=True)
class SettingRow:
    """One key of the configuration in its three values, as text; None where there is no such value."""

    key: str
    title: str
    declared: str | None
    effective: str | None
    default: str | None
    differs: bool
    is_changed: bool
    remark: str


def settings(run: Run) -> list[SettingRow]:
    """Return every key of the configuration of a run in the order of its schema."""
    facts = run
    agreed = compare_settings(facts.config, facts.manifest)
    return [_setting(field, run.config, agreed.get(field.dotted)) for field in form.fields()]


def _setting(field: form.FormField, config: Document, agreement: EffectiveSetting | None) -> SettingRow:
    declared = get_path(config, *field.path)
    is_declared = config is not None and form.states(config, field.path)
    return SettingRow(
        key=field.dotted,
        title=field.title,
        declared=as_yaml(declared) if is_declared else None,
        effective=as_yaml(agreement.effective) if agreement is not None and agreement.pointer else None,
        default=None if field.required else as_yaml(field.default),
        differs=agreement is not None and agreement.state == "differs",
        is_changed=is_declared and declared != field.default,
        remark=(agreement.remark if agreement is not None else None) or "",
    )


def as_yaml(value: Any) -> str:
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
