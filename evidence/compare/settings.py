"""Compare the settings of runs, most influential first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal

from evidence.effective import MANIFEST_PATHS, effective_settings, flatten, values_agree
from evidence.run import Document, Run
from schemas.catalog import schema

SETTINGS_OF_MANIFEST = ("mode", "code", "environment", "devices", "model", "dataset", "training")
"""Groups of the manifest that state how a run was made; the others report its results."""
NO_SETTINGS = frozenset({"training.steps_done", "devices.list", "devices.requested", "schema_version", "name"})
"""Fields in these groups and in the configuration that are not settings; `devices.requested` repeats `mesh.device`."""
ABSENT = "(not stated)"
"""Value of a setting that a run does not state. No document has this text as a setting."""
_ORDER = (
    "mode", "optimizer", "method", "training", "batch", "limits", "model", "data", "dataset", "precision", "memory",
    "evaluation", "seed", "mesh", "checkpoint", "recording", "devices", "environment", "code",
)  # fmt: skip
"""Groups of settings, most influential first."""
_OPEN_GROUPS = ("environment.flags.", "environment.packages.")
"""Groups with any keys, where a missing key means that it is not set."""
Source = Literal["declared", "effective", "both"]
"""Whether config.yaml declares a setting, run_manifest.json states what took effect, or both state the same."""


@dataclass(frozen=True, kw_only=True)
class ComparedSetting:
    """A setting and its value in each run.

    Attributes:
        name: Dotted path inside its document.
        source: Where it is stated; `both` only in a `SettingsDiff`.
        values: Value in each run, `ABSENT` if the run does not state it.
    """

    name: str
    source: Source
    values: tuple[Any, ...]


@dataclass(frozen=True, kw_only=True)
class SettingsDiff:
    """Settings of several runs. What both documents state is listed once, under its key of config.yaml.

    Attributes:
        differing: Settings with different values.
        equal: Settings that all runs share.
        unheld: Settings that some run does not state, and that are equal in the others.
    """

    differing: tuple[ComparedSetting, ...]
    equal: tuple[ComparedSetting, ...]
    unheld: tuple[ComparedSetting, ...]


def setting_rank(name: str) -> int:
    """Return the sort key of a setting: its group, most influential first."""
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
    """List every setting that any run states, the declared ones first. A key missing in a config has its default."""
    effective = [_effective_settings(fact.manifest or {}) for fact in facts]
    declared = [flatten(fact.config or {}) for fact in facts]
    stated = {name for values in declared for name in values}
    defaults = {name: value for name, value in _config_defaults().items() if name in stated}
    declared = [
        values and values | {name: values.get(name, default) for name, default in defaults.items()}
        for values in declared
    ]
    return [*_compare("declared", declared), *_compare("effective", effective)]


@cache
def _config_defaults() -> dict[str, Any]:
    """Return the default of each key of a configuration, by dotted path."""
    groups = schema("train_config")["properties"]
    return {
        f"{group}.{key}": node["default"]
        for group, inner in groups.items()
        for key, node in inner.get("properties", {}).items()
        if "default" in node
    }


def _effective_settings(manifest: Document) -> dict[str, Any]:
    """Return the settings of a manifest by dotted path, and other effective settings by their configuration key."""
    groups = {group: manifest[group] for group in SETTINGS_OF_MANIFEST if manifest.get(group) is not None}
    return flatten(groups) | {
        key: value for key, value in effective_settings(manifest).items() if key not in MANIFEST_PATHS
    }


def _compare(source: Source, stated: Sequence[dict[str, Any]]) -> list[ComparedSetting]:
    names = dict.fromkeys(name for values in stated for name in values if name not in NO_SETTINGS)
    return [
        ComparedSetting(name=name, source=source, values=tuple(values.get(name, ABSENT) for values in stated))
        for name in sorted(names, key=setting_rank)
    ]


def diff_settings(settings: Sequence[ComparedSetting]) -> SettingsDiff:
    """Group settings by whether they differ, and list each setting once."""
    found: dict[str, list[ComparedSetting]] = {"differing": [], "equal": [], "unheld": []}
    empty = {source: _empty_runs(settings, source) for source in ("declared", "effective")}
    empty["both"] = empty["declared"] & empty["effective"]
    for setting in _merge_documents(settings):
        held = [value for value in setting.values if value != ABSENT]
        if setting.name.startswith(_OPEN_GROUPS):
            held = [value for run, value in enumerate(setting.values) if run not in empty[setting.source]]
        is_held = len(held) == len(setting.values)
        found["differing" if not all_equal(held) else "equal" if is_held else "unheld"].append(setting)
    return SettingsDiff(differing=tuple(found["differing"]), equal=tuple(found["equal"]), unheld=tuple(found["unheld"]))


def _empty_runs(settings: Sequence[ComparedSetting], source: Source) -> frozenset[int]:
    """Return the numbers of the runs that state no setting in a document."""
    every = [setting.values for setting in settings if setting.source == source]
    return frozenset(
        run for run, values in enumerate(zip(*every, strict=True)) if all(value == ABSENT for value in values)
    )


def _merge_documents(settings: Sequence[ComparedSetting]) -> Iterator[ComparedSetting]:
    """Yield settings, a declared and its effective one as one if each run states the same in both."""
    effective = {setting.name: setting for setting in settings if setting.source == "effective"}
    for setting in settings:
        if setting.source != "declared":
            continue
        twin = effective.get(MANIFEST_PATHS.get(setting.name, setting.name))
        pairs = list(zip(setting.values, twin.values, strict=True)) if twin is not None else []
        if twin is not None and all(ABSENT in pair or values_agree(setting.name, *pair) for pair in pairs):
            del effective[twin.name]
            values = tuple(ran if asked == ABSENT else asked for asked, ran in pairs)
            yield replace(setting, source="both", values=values)
        else:
            yield setting
    yield from effective.values()
