"""The evaluation sets, whose prompts no training row may have, the rows of the datasets, and fresh items and rows."""

import json
import math
from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from trainer.data.dev_reasoning.catalog import (
    DATASET_SHARES,
    SHARES,
    STORIES,
    DrawnProblem,
    Shares,
    draw_problems,
    prompt_key,
)
from trainer.data.dev_reasoning.problem import Kind

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


DATASET = "dev-reasoning-v2"
"""The dataset that the built-in tokenizer was trained on."""
COMMITTED: Mapping[str, tuple[int, int]] = {DATASET: (550, 7), "dev-stories-v1": (100, 8)}
"""Each dataset with its number of committed rows and their seed."""
TRACE_VERSION = "2"


def build_dataset(name: str, eval_prompts: frozenset[str]) -> list[dict[str, Any]]:
    """Return the rows of a committed dataset, given the prompts of the evaluation sets."""
    return _draw_rows(name, *COMMITTED[name], eval_prompts)


def generate_rows(dataset: str, count: int, seed: int, *, exclude_prompts: frozenset[str]) -> list[dict[str, Any]]:
    """Return further rows of a dataset: no prompt twice, none of an evaluation set.

    Args:
        dataset: its name.
        count: how many rows.
        seed: decides which; the committed rows have seeds of their own.
        exclude_prompts: further prompts to leave out, for example those of the committed rows. Prompts that differ
            only in case, white space or punctuation are left out too.

    Raises:
        ValueError: the generator has fewer different prompts than that.
    """
    return _draw_rows(dataset, count, seed, exclude_prompts | eval_prompts())


def _draw_rows(dataset: str, count: int, seed: int, exclude_prompts: frozenset[str]) -> list[dict[str, Any]]:
    keys = frozenset(prompt_key(prompt) for prompt in exclude_prompts)
    drawn = draw_problems(seed, DATASET_SHARES[dataset], excluded_keys=keys)
    return [_row(one) for one in islice(drawn, count)]


def _row(drawn: DrawnProblem) -> dict[str, Any]:
    steps = [
        {"i": position, "type": step.type, "content": step.content} for position, step in enumerate(drawn.problem.steps)
    ]
    return {
        "trace_version": TRACE_VERSION,
        "prompt": drawn.problem.prompt,
        "final_answer": drawn.problem.answer,
        "steps": steps,
        "meta": {"category": drawn.kind.category, "kind": drawn.kind.name, "difficulty": drawn.difficulty},
    }


MOST_DRAWS = 20
"""Draws for each item; a kind with 7 % of a set is drawn often enough in one and a half, on average."""


def fresh_items(
    eval_set: str | None, dataset: str, count: int, seed: int, *, training: Collection[str]
) -> tuple[list[dict[str, Any]], int] | None:
    """Return items drawn in the shares of an evaluation set, and how many were left out because training has them.

    None of the committed evaluation sets has any of them.

    Args:
        eval_set: A built-in set whose kinds are drawn. Any other, or None: the kinds of the dataset.
        dataset: A built-in dataset. Any other: there is no generator of its kinds.
        count: How many.
        seed: Decides which.
        training: Prompts of the training rows.

    Returns:
        None where neither set nor dataset is built in.

    Raises:
        ValueError: The generator has fewer different prompts than that.
    """
    shares = SETS[eval_set][0] if eval_set is not None and eval_set in SETS else DATASET_SHARES.get(dataset)
    if shares is None:
        return None
    seen = frozenset(map(prompt_key, training))
    left_out: list[DrawnProblem] = []

    def new_to_the_model(drawn: DrawnProblem) -> bool:
        is_seen = prompt_key(drawn.problem.prompt) in seen
        if is_seen:
            left_out.append(drawn)
        return not is_seen

    drawn = at_most(
        MOST_DRAWS * count + len(seen),
        draw_problems(seed, shares, excluded_keys=frozenset(map(prompt_key, eval_prompts()))),
    )
    chosen = in_shares(filter(new_to_the_model, drawn), shares, count)
    return [item_of(f"seed-{seed}", number, each) for number, each in enumerate(chosen, 1)], len(left_out)


def at_most(count: int, drawn: Iterator[DrawnProblem]) -> Iterator[DrawnProblem]:
    """Yield problems, and give up after so many: a kind may be exhausted while the others go on for ever.

    Raises:
        ValueError: that many were drawn, and more are requested.
    """
    yield from islice(drawn, count)
    message = f"a kind of problem has no new prompt left after {count:,} draws."
    raise ValueError(message)


def file_texts() -> dict[str, str]:
    """Return the content of each committed file by its name."""
    sets = build_sets()
    prompts = frozenset(item["prompt"] for items in sets.values() for item in items)
    datasets = {name: build_dataset(name, prompts) for name in COMMITTED}
    return {f"{name}.jsonl": _lines(rows) for name, rows in {**datasets, **sets}.items()}


def _lines(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
