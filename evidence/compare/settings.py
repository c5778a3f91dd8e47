"""Compare the settings of runs, most influential first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal

from evidence.effective import MANIFEST_PATHS, effective_settings, flatten, values_agree
from evidence.run import Document, Run
from schemas.catalog import schema

SETTINGS_OF_MANIFEST = ("mode", "code", "environment", "devices", "model", "dataset", "training")  # not results
NO_SETTINGS = frozenset({"training.steps_done", "devices.list", "devices.requested", "schema_version", "name"})
"""Fields in these groups and in the configuration that are not settings; `devices.requested` repeats `mesh.device`."""
ABSENT = "(not stated)"  # value of a setting that a run does not state
_ORDER = (
    "mode", "optimizer", "method", "training", "batch", "limits", "model", "data", "dataset", "precision", "memory",
    "evaluation", "seed", "mesh", "checkpoint", "recording", "devices", "environment", "code",
)  # fmt: skip
"""Groups of settings, most influential first."""
_OPEN_GROUPS = ("environment.flags.", "environment.packages.")  # with arbitrary keys; a missing key is not set
Source = Literal["declared", "effective", "both"]
"""Where a setting is stated: in config.yaml (declared), in run_manifest.json (effective), or equal in both."""


@dataclass(frozen=True, kw_only=True)
class ComparedSetting:
    """A setting by its dotted path, with its value (or `ABSENT`) in each run."""

    name: str
    source: Source
    values: tuple[Any, ...]

    @property
    def kind(self) -> Literal["changed", "derived"]:
        """How a setting came to differ: changed in the configuration, or derived from it, the machine or the code."""
        return "derived" if self.source == "effective" else "changed"


@dataclass(frozen=True, kw_only=True)
class SettingsDiff:
    """Settings of several runs, each listed once; those that only some runs state, with equal values, are `unheld`."""

    differing: tuple[ComparedSetting, ...]
    equal: tuple[ComparedSetting, ...]
    unheld: tuple[ComparedSetting, ...]

    def by_kind(self) -> list[ComparedSetting]:
        """Return the differing settings, changed ones first."""
        return sorted(self.differing, key=lambda setting: setting.kind)


def setting_rank(name: str) -> int:
    """Return the sort key of a setting by its group."""
    group = name.partition(".")[0]
    return _ORDER.index(group) if group in _ORDER else len(_ORDER)


def values_equal(one: Any, other: Any, tolerance: float = 0.0) -> bool:
    """Return whether two values are equal, numbers within a relative tolerance. True is not 1, but 1 is 1.0."""
    if isinstance(one, bool) != isinstance(other, bool):
        return False
    if tolerance and isinstance(one, int | float) and isinstance(other, int | float):
        return abs(one - other) <= tolerance * max(abs(one), abs(other))
    return bool(one == other)


def all_equal(values: Sequence[Any]) -> bool:
    """Return whether all values are equal."""
    return all(values_equal(value, values[0]) for value in values)


def list_settings(facts: Sequence[Run]) -> list[ComparedSetting]:
    """List the settings of all runs, the declared ones first. Keys that are missing in a config have their defaults."""
    declared = [flatten(fact.config or {}) for fact in facts]
    names = {name for values in declared for name in values}
    defaults = {name: value for name, value in _config_defaults().items() if name in names}
    stated: dict[Source, list[dict[str, Any]]] = {
        # A document keeps the order of its own keys, before the defaults of others.
        "declared": [values and values | defaults | values for values in declared],
        "effective": [_manifest_settings(fact.manifest or {}) for fact in facts],
    }
    return [
        ComparedSetting(name=name, source=source, values=tuple(values.get(name, ABSENT) for values in runs))
        for source, runs in stated.items()
        for name in sorted(dict.fromkeys(name for values in runs for name in values), key=setting_rank)
        if name not in NO_SETTINGS
    ]


@cache
def _config_defaults() -> dict[str, Any]:
    return {
        f"{group}.{key}": node["default"]
        for group, inner in schema("train_config")["properties"].items()
        for key, node in inner.get("properties", {}).items()
        if "default" in node
    }


def _manifest_settings(manifest: Document) -> dict[str, Any]:
    """Return the settings of a manifest by dotted path, and other effective settings by their configuration key."""
    groups = {group: manifest[group] for group in SETTINGS_OF_MANIFEST if manifest.get(group) is not None}
    effective = effective_settings(manifest)
    return flatten(groups) | {key: effective[key] for key in effective if key not in MANIFEST_PATHS}


def diff_settings(settings: Sequence[ComparedSetting]) -> SettingsDiff:
    """Group settings by whether they differ, and list each setting once."""
    found: dict[str, list[ComparedSetting]] = {"differing": [], "equal": [], "unheld": []}
    empty: dict[str, set[int]] = {}  # indexes of runs without the document
    for source in ("declared", "effective"):
        columns = zip(*(setting.values for setting in settings if setting.source == source), strict=True)
        empty[source] = {run for run, values in enumerate(columns) if all(value == ABSENT for value in values)}
    empty["both"] = empty["declared"] & empty["effective"]
    for setting in _merge_documents(settings):
        values = [value for value in setting.values if value != ABSENT]
        if setting.name.startswith(_OPEN_GROUPS):
            values = [value for run, value in enumerate(setting.values) if run not in empty[setting.source]]
        is_complete = len(values) == len(setting.values)
        found["differing" if not all_equal(values) else "equal" if is_complete else "unheld"].append(setting)
    return SettingsDiff(**{name: tuple(group) for name, group in found.items()})


def _merge_documents(settings: Sequence[ComparedSetting]) -> Iterator[ComparedSetting]:
    """Yield settings; a declared one is merged with its effective one if they agree in every run."""
    effective = {setting.name: setting for setting in settings if setting.source == "effective"}
    for setting in settings:
        if setting.source != "declared":
            continue
        twin = effective.get(MANIFEST_PATHS.get(setting.name, setting.name))
        pairs = list(zip(setting.values, twin.values, strict=True)) if twin is not None else []
        if twin is not None and all(ABSENT in pair or values_agree(setting.name, *pair) for pair in pairs):
            del effective[twin.name]
            values = tuple(effect if declared == ABSENT else declared for declared, effect in pairs)
            yield replace(setting, source="both", values=values)
        else:
            yield setting
    yield from effective.values()
