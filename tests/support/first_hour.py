"""What a newcomer has: a small model folder with weights, and rows with plain answers."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from model_folders import model_folder
from tiny_models import random_model

from trainer.model.export import export
from trainer.model.source import resolve


def folder_with_weights(folder: Path) -> Path:
    """Make a model folder that can be trained: config.json, tokenizer and random weights."""
    bare = resolve(str(model_folder(folder.with_name(f"{folder.name}-bare"), bos_token_id=1, eos_token_id=1)))
    export(folder, random_model(bare.spec)[1], bare)
    return folder


def sums(count: int) -> list[dict[str, Any]]:
    """Return rows of prompt and completion, each question once: `2 + 3 rolls`, `5`."""
    pairs = [(2 + number // 40, 3 + number % 40) for number in range(count)]
    return [
        {"prompt": f"A baker has {a} rolls and bakes {b} more. How many are there?", "completion": str(a + b)}
        for a, b in pairs
    ]


def write_rows(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def rows_in(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
