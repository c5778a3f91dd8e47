"""Configurations to start from (shipped ones and those of earlier runs), and local models and datasets.

The files are read without the trainer, which the dashboard does not import.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import dashboard
from dashboard.shared import form
from evidence.layout import CONFIG
from schemas.validate import read_document

SHIPPED = Path(dashboard.__file__).parent.parent / "trainer" / "configs"
SAME_AS = "same as "
_OVERLAY_PREFIX = "smoke_"  # prefix of files for `--smoke_config`, which are not complete configurations

_FIRST, _QUICK = "demo", "tiny.yaml"
_SMOKE_STEPS = 2

DATA_SUFFIXES = ("jsonl", "parquet", "txt")
_MAX_FOUND, _MAX_ENTRIES = 50, 2_000


class StartConfig(NamedTuple):
    """A configuration to start from, with its name on the page: `tiny.yaml` or `same as demo-2026…`."""

    key: str
    path: Path


def same_as(run: str) -> str:
    """Return the key of the configuration of a run."""
    return f"{SAME_AS}{run}"


def sources(runs: Iterable[Path] = ()) -> list[StartConfig]:
    """Return the shipped configurations, then the `config.yaml` of each run folder."""
    shipped = sorted(SHIPPED.glob("*.yaml"), key=lambda path: (path.stem != _FIRST, path.stem))
    complete = [StartConfig(path.name, path) for path in shipped if not path.name.startswith(_OVERLAY_PREFIX)]
    earlier = [StartConfig(same_as(run.name), run / CONFIG) for run in runs]
    return [*complete, *(source for source in earlier if source.path.is_file())]


def read(source: StartConfig) -> dict[str, Any]:
    """Load a configuration as far as it can be read; `form.problems` reports what is wrong with it."""
    return deepcopy(read_document(source.path, "train_config").value or {})


def make_smoke_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration of a two-step smoke run, as `train --smoke-steps 2` makes it."""
    result = deepcopy(dict(config))
    result["limits"] = {**(result.get("limits") or {}), "steps": _SMOKE_STEPS}
    result["recording"] = {**(result.get("recording") or {}), "log_every_steps": 1}
    # The trainer keeps the model if it fits and is fast, and otherwise makes it small.
    result["model"] = {**(result.get("model") or {}), "shape": "auto"}
    name = str(result.get("name", "run"))
    return {**result, "name": name if name.endswith("smoke") else f"{name[:58]}-smoke", "mode": "smoke"}


def quick_smoke() -> dict[str, Any]:
    """Return the configuration of the one-click smoke run."""
    return {**read(StartConfig(_QUICK, SHIPPED / _QUICK)), "name": "smoke", "mode": "smoke"}


def full_run_parameters(
    smoke: Mapping[str, Any], run: str, *, queued: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the parameters of the Launch page for the full run of a smoke run.

    The source is the shipped configuration with the same settings, or the smoke run with more steps. `queued` is the
    configuration that was queued; it has the sizes of a model that was then made small.
    """
    set_here = ("name=", "mode=", "model.shape=", "limits.steps=", "recording.log_every_steps=")
    original = form.fill_defaults(queued or smoke)
    for source in sources():
        full = form.fill_defaults(read(source))
        if all(text.startswith(set_here) for text in form.assignments(full, original)):
            return {"source": source.key}
    name = str(smoke.get("name", "")).removesuffix("smoke").rstrip("-") or "full"
    steps = form.field("limits.steps").default
    own = [f"name={name}", "mode=full", "model.shape=own", f"limits.steps={steps}"]
    before = form.assignments(form.fill_defaults(smoke), original)
    return {"source": same_as(run), "set": [*own, *(text for text in before if not text.startswith(set_here))]}


def local_models(folder: Path) -> list[str]:
    """Return GGUF files and model folders in a folder and its subfolders, as a configuration names them."""

    def is_model(path: Path) -> bool:
        if path.is_dir():
            return (path / "config.json").is_file() and any(path.glob("*.safetensors"))
        return path.suffix.lower() == ".gguf" and path.is_file()

    return _names(folder, filter(is_model, _entries(folder)))


def local_datasets(folder: Path, uploads: Path) -> list[str]:
    """Return data files in a folder and its subfolders, and uploaded ones, as a configuration names them."""
    files = (path for path in chain(_entries(folder), _children(uploads)) if path.is_file())
    return _names(folder, (path for path in files if path.suffix.lower().lstrip(".") in DATA_SUFFIXES))


def _names(folder: Path, found: Iterable[Path]) -> list[str]:
    first = islice(found, _MAX_FOUND)
    return [str(path.relative_to(folder) if path.is_relative_to(folder) else path) for path in first]


def _entries(folder: Path) -> list[Path]:
    """Return what a folder and its subfolders contain, without hidden files; linked folders are not entered."""
    children = _children(folder)
    below = (path for child in children if child.is_dir() and not child.is_symlink() for path in _children(child))
    return [*islice(chain(children, below), _MAX_ENTRIES)]


def _children(folder: Path) -> list[Path]:
    """Return what a folder contains, without hidden files; nothing if it cannot be read."""
    try:
        return sorted(islice((path for path in folder.iterdir() if not path.name.startswith(".")), _MAX_ENTRIES))
    except OSError:
        return []
