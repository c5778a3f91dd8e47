"""Countdown: reach a target with three given numbers. Tasks, solutions and held-out items from one generator.

`python -m benchmarks.countdown` rewrites the built-in `countdown-v2` (tasks for the reward `countdown`) and
`eval_countdown_v2` (held-out items with their solutions). `python -m benchmarks.countdown rows.jsonl` writes the
solved rows of `trainer/configs/countdown_start.yaml`.

An item is three numbers, in any order, and a target. Its SHA-256 decides its split, so the model that starts
`trainer/configs/grpo_demo.yaml` has never seen a task of `countdown-v2`, and neither has seen a held-out item.
"""

from __future__ import annotations

import hashlib
import json
import random
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import combinations, combinations_with_replacement, permutations
from pathlib import Path
from typing import Any, Literal

from trainer.data.builtin import FOLDER

Split = Literal["held_out", "start", "tasks"]

MAX_NUMBER = 25
MAX_TARGET = 99
SPLITS: tuple[Split, ...] = ("held_out", *["start"] * 4, *["tasks"] * 5)
"""Split by the last decimal digit of an item's SHA-256."""
SEED = 29
START_ROWS = 1200 * 128
"""Rows that the start learns from: its steps times its batch size."""
TASKS = 150 * 32
"""Tasks of `countdown-v2`: the steps of the demo times its prompts per step."""
HELD_OUT, EVAL_ITEMS = 600, 300
"""Number of held-out items in `grpo_learning.py`, and of the first of them in `eval_countdown_v2`."""
DATASET, EVAL_SET = "countdown-v2", "eval_countdown_v2"

_Part = tuple[Fraction, str, int]
"""Value, text and precedence: 1 a sum, 2 a product, 3 a number."""


@dataclass(frozen=True, kw_only=True)
class Item:
    """Three numbers in ascending order and a target that cannot be reached with fewer."""

    numbers: tuple[int, ...]
    target: int

    @property
    def split(self) -> Split:
        """The split of the item."""
        text = f"{' '.join(map(str, self.numbers))} {self.target}"
        return SPLITS[int(hashlib.sha256(text.encode()).hexdigest(), 16) % len(SPLITS)]

    def task(self, rng: random.Random) -> dict[str, Any]:
        """Return the item as a dataset row without an answer, with its numbers in a random order."""
        numbers = rng.sample(self.numbers, len(self.numbers))
        prompt = f"numbers {' '.join(map(str, numbers))} target {self.target} = "
        return {"prompt": prompt, "task": {"kind": "countdown", "numbers": numbers, "target": self.target}}


def all_items() -> Iterator[Item]:
    """Yield every item: numbers from 1 to 25, and targets from 1 to 99 that need all three."""
    for numbers in combinations_with_replacement(range(1, MAX_NUMBER + 1), 3):
        reached = {value for pair in combinations(numbers, 2) for value in expressions(pair)} | set(numbers)
        targets = {int(value) for value in expressions(numbers) if value.denominator == 1} - reached
        yield from (Item(numbers=numbers, target=target) for target in sorted(targets) if 1 <= target <= MAX_TARGET)


@cache
def items(split: Split) -> tuple[Item, ...]:
    """Return the items of a split."""
    return tuple(item for item in all_items() if item.split == split)


def solutions(item: Item) -> list[str]:
    """Return all solutions with the fewest brackets, sorted.

    Numbers 2, 3 and 7 with target 13 give `2*3+7`, `3*2+7`, `7+2*3` and `7+3*2`.
    """
    return sorted(expressions(item.numbers)[Fraction(item.target)])


@cache
def expressions(numbers: tuple[int, ...]) -> dict[Fraction, set[str]]:
    """Return every value that uses each of the numbers once, with all ways to write it."""
    found: dict[Fraction, set[str]] = defaultdict(set)

    def combine(parts: list[_Part]) -> None:
        if len(parts) == 1:
            found[parts[0][0]].add(parts[0][1])
        for one, other in permutations(range(len(parts)), 2):
            rest = [part for place, part in enumerate(parts) if place not in (one, other)]
            for each in _join(parts[one], parts[other]):
                combine([*rest, each])

    combine([(Fraction(number), str(number), 3) for number in numbers])
    return dict(found)


def _join(left: _Part, right: _Part) -> Iterator[_Part]:
    (a, a_text, a_precedence), (b, b_text, b_precedence) = left, right
    values = {"+": a + b, "-": a - b, "*": a * b} | ({"/": a / b} if b else {})
    for sign, value in values.items():
        precedence = 1 if sign in "+-" else 2
        first = a_text if a_precedence >= precedence else f"({a_text})"
        is_bare = b_precedence > precedence or (b_precedence == precedence and sign in "+*")
        yield value, f"{first}{sign}{b_text if is_bare else f'({b_text})'}", precedence


def tasks() -> list[dict[str, Any]]:
    """Return the rows of `countdown-v2`."""
    rng = random.Random(SEED)
    return [item.task(rng) for item in rng.sample(items("tasks"), TASKS)]


def held_out_tasks() -> list[tuple[Item, dict[str, Any]]]:
    """Return held-out items, each with its task."""
    rng = random.Random(SEED + 1)
    return [(item, item.task(rng)) for item in rng.sample(items("held_out"), HELD_OUT)]


def eval_items() -> list[dict[str, Any]]:
    """Return the rows of `eval_countdown_v2`, with all solutions of each item."""
    about = {"section": "core", "category": "countdown"}
    return [
        {"id": f"{EVAL_SET}-{number:03}", "prompt": task["prompt"], "expected": solutions(item), **about}
        for number, (item, task) in enumerate(held_out_tasks()[:EVAL_ITEMS], start=1)
    ]


def solved(split_items: tuple[Item, ...], count: int, seed: int) -> list[dict[str, Any]]:
    """Return rows with a random item, order of its numbers and solution each."""
    rng = random.Random(seed)
    return [
        {"prompt": item.task(rng)["prompt"], "completion": rng.choice(solutions(item))}
        for item in rng.choices(split_items, k=count)
    ]


def write_rows(path: Path, rows: list[dict[str, Any]]) -> Path:
    """Write rows as JSONL, and return the path."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8", newline="\n")
    return path


if __name__ == "__main__":
    if sys.argv[1:]:
        write_rows(Path(sys.argv[1]), solved(items("start"), START_ROWS, SEED + 2))
    else:
        write_rows(FOLDER / f"{DATASET}.jsonl", tasks())
        write_rows(FOLDER / f"{EVAL_SET}.jsonl", eval_items())
