"""Where a launch can start from: the configurations that ship with the program, and those of earlier runs.

They are read as files. The dashboard never imports the trainer, so it finds its folder beside its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dashboard
from evidence.run.layout import CONFIG
from schemas.validate import read_document

SHIPPED = Path(dashboard.__file__).parent.parent / "trainer" / "configs"
_SAME_AS = "same as "
OVERLAY_PREFIX = "smoke_"
"""Files whose name begins so are laid over another configuration and are none by themselves."""

FIRST = "demo"
"""The shipped configuration that is offered first."""

QUICK = "tiny.yaml"
"""The shipped configuration behind the one-click smoke run: seconds on any machine."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """A configuration to start from.

    Attributes:
        key: how the page and the address name it: `tiny.yaml` or `same as demo-2026…`.
    """

    key: str
    path: Path


def same_as(run: str) -> str:
    """Return the key of the source that is the configuration of a run."""
    return f"{_SAME_AS}{run}"


def runs_of(keys: Iterable[str]) -> set[str]:
    """Return the runs whose configurations these keys name."""
    return {key.removeprefix(_SAME_AS) for key in keys if key.startswith(_SAME_AS)}


def sources(runs: Iterable[Path] = ()) -> list[Source]:
    """Return the shipped configurations, then those of the given run folders that have one."""
    shipped = [
        Source(key=path.name, path=path)
        for path in sorted(SHIPPED.glob("*.yaml"), key=lambda path: (path.stem != FIRST, path.stem))
        if not path.name.startswith(OVERLAY_PREFIX)
    ]
    earlier = [Source(key=same_as(folder.name), path=folder / CONFIG) for folder in runs if (folder / CONFIG).is_file()]
    return [*shipped, *earlier]


def read(source: Source) -> dict[str, Any]:
    """Return the configuration of a source as far as it can be read; checking says what is wrong with it."""
    return deepcopy(read_document(source.path, "train_config").value or {})


def smoke_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the smoke run that rehearses a configuration: the smoke overlay laid over it, with a name of its own."""
    result = deepcopy(dict(config))
    for path in sorted(SHIPPED.glob(f"{OVERLAY_PREFIX}*.yaml"))[:1]:
        overlay = read_document(path, "train_config").value or {}
        result = _laid_over(result, overlay)
    name = str(result.get("name", "run"))
    return {**result, "name": name if name.endswith("smoke") else f"{name[:58]}-smoke", "mode": "smoke"}


def quick_smoke() -> dict[str, Any]:
    """Return the configuration of the one-click smoke run."""
    return {
        **read(next(source for source in sources() if source.key == QUICK)),
        "name": "smoke",
        "mode": "smoke",
    }


def _laid_over(below: dict[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    for key, value in above.items():
        old = below.get(key)
        below[key] = _laid_over(old, value) if isinstance(old, dict) and isinstance(value, Mapping) else deepcopy(value)
    return below
