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
from evidence.layout import CONFIG
from schemas.validate import read_document

SHIPPED = Path(dashboard.__file__).parent.parent / "trainer" / "configs"
_SAME_AS = "same as "
OVERLAY_PREFIX = "smoke_"
"""Files whose name begins so are for `--smoke_config` and are not a configuration by themselves."""

FIRST = "demo"
"""The shipped configuration that is offered first."""

SMOKE_STEPS = 2
"""Steps of a smoke run: one that starts and one that goes on."""

OF_SMOKE = frozenset({"name", "mode", "model.shape", "limits.steps", "recording.log_every_steps"})
"""Settings that `smoke_of` replaces."""

OF_SMALL = frozenset(
    {
        "model.weights",
        "data.generated_rows",
        "batch.microbatch_size",
        "batch.accumulation_steps",
        "evaluation.max_new_tokens",
        "evaluation.batch_size",
    }
)
"""Settings that the trainer makes smaller besides, where it makes the model of a smoke run small."""

QUICK = "tiny.yaml"
"""The shipped configuration behind the one-click smoke run: seconds on any machine."""


@dataclass(frozen=True, kw_only=True)
class StartConfig:
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


def sources(runs: Iterable[Path] = ()) -> list[StartConfig]:
    """Return the shipped configurations, then those of the given run folders that have one."""
    shipped = [
        StartConfig(key=path.name, path=path)
        for path in sorted(SHIPPED.glob("*.yaml"), key=lambda path: (path.stem != FIRST, path.stem))
        if not path.name.startswith(OVERLAY_PREFIX)
    ]
    earlier = [
        StartConfig(key=same_as(folder.name), path=folder / CONFIG) for folder in runs if (folder / CONFIG).is_file()
    ]
    return [*shipped, *earlier]


def read(source: StartConfig) -> dict[str, Any]:
    """Return the configuration of a source as far as it can be read; checking states what is wrong with it."""
    return deepcopy(read_document(source.path, "train_config").value or {})


def smoke_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the smoke run of a configuration, as `train --smoke_steps 2` makes it, with a name of its own.

    It is of the configuration's own model where the trainer finds that it fits and is quick, else of its shape made
    small.
    """
    result = deepcopy(dict(config))
    result["limits"] = {**(result.get("limits") or {}), "steps": SMOKE_STEPS}
    result["recording"] = {**(result.get("recording") or {}), "log_every_steps": 1}
    result["model"] = {**(result.get("model") or {}), "shape": "auto"}
    name = str(result.get("name", "run"))
    return {**result, "name": name if name.endswith("smoke") else f"{name[:58]}-smoke", "mode": "smoke"}


def quick_smoke() -> dict[str, Any]:
    """Return the configuration of the one-click smoke run."""
    return {**read(next(source for source in sources() if source.key == QUICK)), "name": "smoke", "mode": "smoke"}
