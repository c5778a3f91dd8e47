"""The evaluation sets: how they are drawn, and the prompts that no training row may have."""

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from trainer.data.dev_reasoning.catalog import SHARES, STORIES, Shares
from trainer.data.dev_reasoning.problem import Kind
from trainer.data.dev_reasoning.sampling import DrawnProblem, draw_problems, prompt_key

FOLDER = Path(__file__).parents[1]
SETS: Mapping[str, tuple[Shares, int, int]] = {
    "eval_v1": (SHARES, 50, 101),
    "eval_v2": (SHARES, 100, 202),
    "eval_stories_v1": (STORIES, 100, 303),
}
"""Each set with its kinds, its number of items and its seed."""

_SECTIONS = {"arithmetic": "core", "comparison": "core", "edge_case": "edge"}


def build_sets() -> dict[str, list[dict[str, Any]]]:
    """Return the items of each evaluation set by its name; kinds in their shares, no prompt in two sets."""
    sets: dict[str, list[dict[str, Any]]] = {}
    taken: frozenset[str] = frozenset()
    for name, (shares, count, seed) in SETS.items():
        problems = in_shares(draw_problems(seed, shares, excluded_keys=taken), shares, count)
        sets[name] = [item_of(name, number, drawn) for number, drawn in enumerate(problems, 1)]
        taken |= {prompt_key(item["prompt"]) for item in sets[name]}
    return sets


def in_shares(problems: Iterator[DrawnProblem], shares: Shares, count: int) -> list[DrawnProblem]:
    """Return the first problems to come that fill each kind's share of a set of `count`."""
    # Shares are rounded up, so the last problems to come may be one too many.
    left = {kind.name: math.ceil(count * share / 100) for kind, share in shares}
    chosen: list[DrawnProblem] = []
    while len(chosen) < count:
        drawn = next(problems)
        if left[drawn.kind.name]:
            left[drawn.kind.name] -= 1
            chosen.append(drawn)
    return chosen


def item_of(name: str, number: int, drawn: DrawnProblem) -> dict[str, Any]:
    """Return a problem as the item of a set, numbered from 1."""
    return {
        "id": f"{name}-{number:03}",
        "prompt": drawn.problem.prompt,
        "expected": drawn.problem.answer,
        "section": section(drawn.kind),
        "category": drawn.kind.category,
        "difficulty": drawn.difficulty,
    }


def section(kind: Kind) -> str:
    """Return the part of the set a kind belongs to: core (bare numbers), edge, or applied (everything else)."""
    return _SECTIONS.get(kind.category, "applied")


def eval_prompts() -> frozenset[str]:
    """Return the prompts of the committed evaluation sets."""
    files = (FOLDER / f"{name}.jsonl" for name in SETS)
    lines = (line for file in files for line in file.read_text(encoding="utf-8").splitlines())
    return frozenset(json.loads(line)["prompt"] for line in lines)
