"""Look up built-in datasets, evaluation sets and models, the training rows of a run, and published model shapes.

Built-in names are versioned, so what a name stands for never changes. Each folder of known_models/ holds the
`config.json` of a public model, without weights; models.json adds parameter count, source and date.
"""

from __future__ import annotations

import json
import stat
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from evidence.hashes import sha256_file, sha256_lines
from evidence.run import Run
from evidence.scores.reading import expected_line
from evidence.scores.recompute import GROUPINGS
from schemas.catalog import DATASETS, EVAL_SETS
from schemas.reading import read_rows

BUILT_IN_MODELS: Mapping[str, Mapping[str, Any]] = {
    "demo": {"family": "gemma", "weights": "random", "parameters": 1_123_456},
    "tiny-gpt2": {"family": "gpt2", "weights": "random", "parameters": 169_728},
}
_DATA = Path(__file__).parents[1] / "trainer" / "data" / "builtin"
_KNOWN_MODELS = Path(__file__).parent / "known_models"
_LARGEST_DATASET = 64 * 2**20  # bytes of a file of rows that is read

Stamp = tuple[int, int]  # size and mtime of a file


def _built_in_rows(name: str) -> tuple[str, list[dict[str, Any]]]:
    path = _DATA / f"{name}.jsonl"
    return sha256_file(path), [json.loads(line) for line in path.read_text("utf-8").splitlines()]


@cache
def built_in_dataset(name: str) -> Mapping[str, Any] | None:
    """Return hash, split and number of rows of a built-in dataset, or None for any other name."""
    if name not in DATASETS:
        return None
    sha256, rows = _built_in_rows(name)
    return {"sha256": sha256, "rows": len(rows), "split": "all"}


@cache
def built_in_eval_set(name: str) -> Mapping[str, Any] | None:
    """Return hashes and number of items of a built-in evaluation set, and its items by id, or None for other names."""
    if name not in EVAL_SETS:
        return None
    sha256, items = _built_in_rows(name)
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


def dataset_file(run: Run) -> tuple[Path, Stamp] | None:
    """Return the file of a run's dataset with its size and mtime, or None if no local file has its hash."""
    if run.manifest is None or run.config is None:
        return None
    name, sha256 = run.config["data"].get("dataset", DATASETS[0]), run.manifest["dataset"]["sha256"]
    candidates = [_DATA / f"{name}.jsonl"] if name in DATASETS else [Path(name), run.folder / Path(name).name]
    for path in candidates:
        if (stamp := _stamp(path)) is not None and _hash(path, stamp) == sha256:
            return path, stamp
    return None


@lru_cache(maxsize=2)
def dataset_rows(path: Path, _stamp: Stamp) -> Sequence[dict[str, Any]] | None:
    """Return the rows of a dataset, or None if they do not follow the schema."""
    read = read_rows(path, "dataset_row")
    return None if any(problem.severity == "error" for problem in read.problems) else read.values


def _stamp(path: Path) -> Stamp | None:
    """Return size and mtime of a file that may be read; the path of an unknown run may name anything."""
    try:
        status = path.stat()
    except (OSError, ValueError):
        return None
    if not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST_DATASET or path.suffix != ".jsonl":
        return None
    return status.st_size, status.st_mtime_ns


@lru_cache(maxsize=64)
def _hash(path: Path, _stamp: Stamp) -> str | None:
    try:
        return sha256_file(path)
    except OSError:
        return None


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


@cache
def published_model(name: str) -> Mapping[str, Any]:
    """Return family and parameters of a known model, tied ones counted once; text-only Gemma 3 counts as `gemma3`."""
    if (folder := known_model_folder(name)) is None:
        return {}
    family = str(json.loads((folder / "config.json").read_text(encoding="utf-8"))["model_type"]).removesuffix("_text")
    return {"family": family, "parameters": int(published_models()[_names()[name.lower()]]["parameters"])}
