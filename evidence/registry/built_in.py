"""What the built-in datasets, evaluation sets and models are, as hashes and counts, by their names.

`built_in.json` is made by `docs/make_registry.py` from the files and programs that the trainer uses; a test makes it
again. The names are versioned: what has another content gets another name, so these facts never change.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from evidence.run.hashes import sha256_lines
from evidence.scores.reading import expected_line

DIGITS = 16
"""Hexadecimal digits that are kept of the hash of one row: two rows share them once in 2^64."""
LABELS = ("section", "category", "difficulty")
"""Of an evaluation item besides id, prompt and expected answer; the scores of groups follow from these."""


def dataset(name: str) -> Mapping[str, Any] | None:
    """Return rows, hash and, row by row, the hashes of the texts of a built-in dataset; None for any other name."""
    known: Mapping[str, Any] | None = _facts()["datasets"].get(name)
    return known


def eval_set(name: str) -> Mapping[str, Any] | None:
    """Return items, hashes and, by id, the hash of each item of a built-in evaluation set; None for any other name."""
    known: Mapping[str, Any] | None = _facts()["eval_sets"].get(name)
    return known


def model(name: str) -> Mapping[str, Any] | None:
    """Return family, sizes and start weights (by dtype, version of jax and seed) of a built-in model, or None."""
    known: Mapping[str, Any] | None = _facts()["models"].get(name)
    return known


def jax_version(stated: str) -> str:
    """Return the part of a version of jax that decides what a seed draws: `jax_version("0.12.0.1")` is `0.12`."""
    return ".".join(stated.split(".")[:2])


def generated_counts(name: str, rows: int, seed: int) -> Mapping[str, Any] | None:
    """Return the counts and first texts of a dataset with generated rows; None where it is not in the table.

    Args:
        name: of the dataset.
        rows: generated ones.
        seed: of the generator.
    """
    wanted = {"dataset": name, "generated_rows": rows, "generator_seed": seed}
    return next((each for each in _facts()["generated"] if wanted.items() <= each.items()), None)


def generator_seed(seed: int) -> int:
    """Return the seed of the generator of a run with this seed."""
    return seed + int(_facts()["generator_seed_offset"])


def item_hash(item: Mapping[str, Any]) -> str:
    """Return the hash of an evaluation item, or of the item in a row of predictions: prompt, answer and labels."""
    return sha256_lines([item["prompt"], expected_line(item), *(item.get(name) or "" for name in LABELS)])[:DIGITS]


def text_hash(text: str) -> str:
    """Return the hash of a rendered training row."""
    return sha256_lines([text])[:DIGITS]


def spell(ids: Sequence[int]) -> str | None:
    """Return the text of tokens under the tokenizer of the built-in models; None where an id is of no token."""
    tokens = _tokens()
    if any(not 0 <= each < len(tokens) for each in ids):
        return None
    return b"".join(tokens[each] for each in ids).decode("utf-8", "replace")


@cache
def _tokens() -> tuple[bytes, ...]:
    """Return the bytes of each token by its id; a token may hold a part of a character."""
    return tuple(bytes.fromhex(each) for each in _facts()["tokens"])


@cache
def _facts() -> dict[str, Any]:
    facts: dict[str, Any] = json.loads((files("evidence") / "registry" / "built_in.json").read_text(encoding="utf-8"))
    return facts
