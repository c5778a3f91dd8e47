"""Look up built-in datasets, evaluation sets and models, and the published shapes of well-known public models.

Built-in names are versioned, so what a name stands for never changes. Each folder of known_models/ holds the
`config.json` of a public model, without weights; models.json adds parameter count, source and date.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from evidence.hashes import sha256_file, sha256_lines
from evidence.scores.reading import expected_line
from evidence.scores.recompute import GROUPINGS
from schemas.catalog import DATASETS, EVAL_SETS

BUILT_IN_MODELS: Mapping[str, Mapping[str, Any]] = {
    "demo": {"family": "gemma", "parameters": 1_123_456, "weights": "random"},
    "tiny-gpt2": {"family": "gpt2", "parameters": 169_728, "weights": "random"},
}
_DATA = Path(__file__).parents[1] / "trainer" / "data" / "builtin"
_KNOWN_MODELS = Path(__file__).parent / "known_models"


def _read_rows(name: str) -> tuple[str, list[dict[str, Any]]]:
    path = _DATA / f"{name}.jsonl"
    return sha256_file(path), [json.loads(line) for line in path.read_text("utf-8").splitlines()]


@cache
def built_in_dataset(name: str) -> Mapping[str, Any] | None:
    """Return hash, split and number of rows of a built-in dataset, or None for any other name."""
    if name not in DATASETS:
        return None
    sha256, rows = _read_rows(name)
    return {"sha256": sha256, "rows": len(rows), "split": "all"}


@cache
def built_in_eval_set(name: str) -> Mapping[str, Any] | None:
    """Return hashes and number of items of a built-in evaluation set, and its items by id, or None for other names."""
    if name not in EVAL_SETS:
        return None
    sha256, items = _read_rows(name)
    return {
        "items": len(items),
        "sha256": sha256,
        "ids_sha256": sha256_lines(item["id"] for item in items),
        "prompts_sha256": sha256_lines(item["prompt"] for item in items),
        "expected_sha256": sha256_lines(expected_line(item) for item in items),
        "rows": {item["id"]: item_key(item) for item in items},
    }


def item_key(item: Mapping[str, Any]) -> tuple[str, ...]:
    """Return prompt, expected answer and labels of an evaluation item or of a row of predictions."""
    return (item["prompt"], expected_line(item), *(item.get(name) or "" for name in GROUPINGS))


@cache
def published_models() -> dict[str, dict[str, Any]]:
    """Load parameter count, other names of the same shape, source and date of each known model."""
    models: dict[str, dict[str, Any]] = json.loads((_KNOWN_MODELS / "models.json").read_text(encoding="utf-8"))
    return models


@cache
def _names() -> dict[str, str]:
    """Return the name in models.json by each name of a model, in lower case."""
    return {alias.lower(): name for name, model in published_models().items() for alias in (name, *model["same_shape"])}


def known_model_folder(name: str) -> Path | None:
    """Return the folder with the config.json of a known model, or None; case does not matter, as on the hub."""
    known = _names().get(name.lower())
    return None if known is None else _KNOWN_MODELS / known.replace("/", "--")


def published_parameters(name: str) -> int | None:
    """Return the published parameter count of a known model, tied ones counted once, or None."""
    known = _names().get(name.lower())
    return None if known is None else int(published_models()[known]["parameters"])


def published_parameters_by_short_name(name: str) -> int | None:
    """Return the published parameter count of a known model named without its owner, or None."""
    return published_parameters({known.rpartition("/")[2]: known for known in _names()}.get(name.lower(), name))


@cache
def published_family(name: str) -> str | None:
    """Return the `model_type` of a known model, or None; text-only Gemma 3 counts as `gemma3`."""
    folder = known_model_folder(name)
    if folder is None:
        return None
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return str(config["model_type"]).removesuffix("_text")
