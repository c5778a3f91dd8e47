"""Well-known public models: what their owners state, and the `config.json` that states their shape.

The planner plans with these shapes, and a run under such a name is compared with them: one table for both.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

KNOWN = Path(__file__).parent / "known"
"""A folder with a config.json for each model, and models.json: parameters, source and date of each."""


@cache
def known_models() -> dict[str, dict[str, Any]]:
    """Return what is stated of each model: parameters, other names of the same shape, source, date."""
    models: dict[str, dict[str, Any]] = json.loads((KNOWN / "models.json").read_text(encoding="utf-8"))
    return models


def folder_of(name: str) -> Path | None:
    """Return the folder with a model's config.json; None where it is not known. Case does not matter, as on the hub."""
    return _folders().get(name.lower())


def parameters_of(name: str) -> int | None:
    """Return the published parameter count of a model, tied ones counted once; None where it is not known."""
    folder = folder_of(name)
    if folder is None:
        return None
    return next(int(each["parameters"]) for known, each in known_models().items() if _folder(known) == folder)


def parameters_by_short_name(name: str) -> int | None:
    """Return the published parameter count of a model named without its owner; None where it is not known."""
    short = {known.rpartition("/")[2]: known for known in _folders()}
    return parameters_of(short.get(name.lower(), name))


def family_of(name: str) -> str | None:
    """Return the `model_type` of a known model; that of Gemma 3 without its images is `gemma3` too."""
    folder = folder_of(name)
    return None if folder is None else str(_config(folder)["model_type"]).removesuffix("_text")


@cache
def _config(folder: Path) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return config


def _folder(name: str) -> Path:
    return KNOWN / name.replace("/", "--")


@cache
def _folders() -> dict[str, Path]:
    """Return the folder of each name, in small letters."""
    return {
        each.lower(): _folder(name) for name, stated in known_models().items() for each in (name, *stated["same_shape"])
    }
