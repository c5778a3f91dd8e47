"""The committed files as text: one JSON object a line, keys in the order of the schema's description."""

import json
from typing import Any

from trainer.data.dev_reasoning.evaluation import build_sets
from trainer.data.dev_reasoning.rows import COMMITTED, build_dataset


def file_texts() -> dict[str, str]:
    """Return the content of each committed file by its name."""
    sets = build_sets()
    prompts = frozenset(item["prompt"] for items in sets.values() for item in items)
    datasets = {name: build_dataset(name, prompts) for name in COMMITTED}
    return {f"{name}.jsonl": _lines(rows) for name, rows in {**datasets, **sets}.items()}


def _lines(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
