"""Content of the built-in datasets, evaluation sets and models, read from the files that ship with trainproof.

The names are versioned: other content gets another name, so these facts never change.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from evidence.run.hashes import sha256_file, sha256_lines
from evidence.scores.reading import expected_line
from schemas.catalog import DATASETS, EVAL_SETS

LABELS = ("section", "category", "difficulty")
"""Labels of an evaluation item, which group scores follow from."""
GENERATOR_SEED_OFFSET = 1_000_003
"""Added to the seed of a run to give the seed of its generated rows."""
MODELS: Mapping[str, Mapping[str, Any]] = {
    "demo": {"family": "gemma", "parameters": 1_123_456, "weights": "random"},
    "tiny-gpt2": {"family": "gpt2", "parameters": 169_728, "weights": "random"},
}
_DATA = Path(__file__).parents[2] / "trainer" / "data"


@cache
def dataset(name: str) -> Mapping[str, Any] | None:
    """Return hash, split and number of rows of a built-in dataset, or None for any other name."""
    if name not in DATASETS:
        return None
    path = _DATA / f"{name}.jsonl"
    return {"sha256": sha256_file(path), "rows": len(_rows(path)), "split": "all"}


@cache
def eval_set(name: str) -> Mapping[str, Any] | None:
    """Return hashes and items by id of a built-in evaluation set, or None for any other name."""
    if name not in EVAL_SETS:
        return None
    path = _DATA / f"{name}.jsonl"
    items = _rows(path)
    return {
        "items": len(items),
        "sha256": sha256_file(path),
        "ids_sha256": sha256_lines(item["id"] for item in items),
        "prompts_sha256": sha256_lines(item["prompt"] for item in items),
        "expected_sha256": sha256_lines(expected_line(item) for item in items),
        "rows": {item["id"]: item_key(item) for item in items},
    }


def item_key(item: Mapping[str, Any]) -> tuple[str, ...]:
    """Return prompt, expected answer and labels of an evaluation item or of a row of predictions."""
    return (item["prompt"], expected_line(item), *(item.get(name) or "" for name in LABELS))


def _rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]
