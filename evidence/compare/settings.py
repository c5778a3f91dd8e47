"""The settings of runs side by side, in the order of what matters, and which of them two documents state alike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from evidence.effective import MANIFEST_PATHS, effective_settings, flatten, values_agree
from evidence.run import Document, Run

SETTINGS_OF_MANIFEST = ("mode", "code", "environment", "devices", "model", "dataset", "training")
"""Groups of the manifest that state how a run was made; the others report what came of it."""
NO_SETTINGS = frozenset({"training.steps_done", "devices.list", "devices.requested", "schema_version", "name"})
"""Fields among them, and of the configuration, that are not settings; `devices.requested` repeats `mesh.device`."""
ABSENT = "(not stated)"
"""Value of a setting that a run does not state; no document holds this text as a setting."""
_ORDER = (
    "mode", "optimizer", "method", "training", "batch", "limits", "model", "data", "dataset", "precision", "memory",
    "evaluation", "seed", "mesh", "checkpoint", "recording", "devices", "environment", "code",
)  # fmt: skip
"""Groups of settings, what changes a result most first."""
Source = Literal["declared", "effective", "both"]
"""declared: from config.yaml. effective: read back by the program, from run_manifest.json. both: stated alike."""


@dataclass(frozen=True, kw_only=True)
class ComparedSetting:
    """One setting and its value in each run."""

    name: str
    """Dotted path inside its document."""
    source: Source
    """Where it is stated; `both` only as `diff_settings` gives it."""
    values: tuple[Any, ...]
    """Value in each run, in their order; `ABSENT` where a run does not state it."""


@dataclass(frozen=True, kw_only=True)
class SettingsDiff:
    """Settings as a reader wants them: what both documents state alike is there once, under its key of config.yaml."""

    differing: tuple[ComparedSetting, ...]
    """Those that runs state otherwise."""
    equal: tuple[ComparedSetting, ...]
    """Those that all runs share."""
    unheld: tuple[ComparedSetting, ...]
    """Those that cannot be compared with each other: some run has nothing of their document, and the others agree."""


def place(name: str) -> int:
    """Return the place of a setting by its group: what changes a result most comes first."""
    group = name.partition(".")[0]
    return _ORDER.index(group) if group in _ORDER else len(_ORDER)


def side_by_side(facts: Sequence[Run]) -> list[ComparedSetting]:
    """Return every setting that any of the runs states: declared ones first, each kind in the order of what matters."""
    declared = [flatten(fact.config or {}) for fact in facts]
    effective = [_effective(fact.manifest or {}) for fact in facts]
    return [*_of_one("declared", declared), *_of_one("effective", effective)]


def all_equal(values: Sequence[Any]) -> bool:
    """Return whether all values are equal and of one type: true is not 1, but 1 is 1.0."""
    first = values[0]
    return all(value == first and isinstance(value, bool) == isinstance(first, bool) for value in values)


def diff_settings(settings: Sequence[ComparedSetting]) -> SettingsDiff:
    """Return the settings once each, sorted by whether they differ; see `SettingsDiff`."""
    silent = {source: _silent(settings, source) for source in ("declared", "effective")}
    silent["both"] = silent["declared"] & silent["effective"]
    found: dict[str, list[ComparedSetting]] = {"differing": [], "equal": [], "unheld": []}
    for setting in _once(settings):
        without = silent[setting.source]
        held = [value for run, value in enumerate(setting.values) if run not in without]
        kind = "differing" if not all_equal(held) else "unheld" if without else "equal"
        found[kind].append(setting)
    return SettingsDiff(differing=tuple(found["differing"]), equal=tuple(found["equal"]), unheld=tuple(found["unheld"]))


def _effective(manifest: Document) -> dict[str, Any]:
    """Return the settings of a manifest: its groups as it names them, and other effective keys under their own name."""
    groups = {group: manifest[group] for group in SETTINGS_OF_MANIFEST if manifest.get(group) is not None}
    return flatten(groups) | {
        key: value for key, value in effective_settings(manifest).items() if key not in MANIFEST_PATHS
    }


def _of_one(source: Source, stated: Sequence[dict[str, Any]]) -> list[ComparedSetting]:
    """Return each setting of one source with its value in each run."""
    names = dict.fromkeys(name for values in stated for name in values if name not in NO_SETTINGS)
    return [
        ComparedSetting(name=name, source=source, values=tuple(values.get(name, ABSENT) for values in stated))
        for name in sorted(names, key=place)
    ]


def _once(settings: Sequence[ComparedSetting]) -> Iterator[ComparedSetting]:
    """Yield the settings, a declared one and what came of it as one where each run states them alike."""
    effective = {setting.name: setting for setting in settings if setting.source == "effective"}
    for setting in settings:
        if setting.source != "declared":
            continue
        twin = effective.get(MANIFEST_PATHS.get(setting.name, setting.name))
        adds_nothing = partial(_says_the_same, setting.name)
        if twin is not None and all(map(adds_nothing, setting.values, twin.values)):
            del effective[twin.name]
            yield replace(setting, source="both", values=tuple(map(_stated_value, setting.values, twin.values)))
        else:
            yield setting
    yield from effective.values()


def _says_the_same(name: str, declared: Any, effective: Any) -> bool:
    """Return whether an effective value adds nothing to the declared one: it is the same, or one is not stated."""
    return ABSENT in (declared, effective) or values_agree(name, declared, effective)


def _stated_value(declared: Any, effective: Any) -> Any:
    return effective if declared == ABSENT else declared


def _silent(settings: Sequence[ComparedSetting], source: Source) -> frozenset[int]:
    """Return the runs, by their place, that state nothing in a document."""
    every = [setting.values for setting in settings if setting.source == source]
    return frozenset(
        run for run, values in enumerate(zip(*every, strict=True)) if all(value == ABSENT for value in values)
    )
