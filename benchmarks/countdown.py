"""Countdown: reach a target with three given numbers. Generator of tasks, solutions and held-out items.

`python -m benchmarks.countdown` rewrites `countdown-v1` (tasks for the reward `countdown`),
`countdown-solved-v1` (the same items with solutions) and `eval_countdown_v1` (items that are in neither).
`python -m benchmarks.countdown rows.jsonl` writes the rows of `trainer/configs/countdown_start.yaml`.

An item is three numbers, in any order, and a target. Its SHA-256 decides whether it is held out.
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
from typing import Any

from trainer.data.builtin import FOLDER

MAX_NUMBER = 12
MAX_TARGET = 60
HELD_OUT = 10
"""One item in this many is held out."""
SOLVED_ORDERS = 2
"""Orders of the numbers of each item in `countdown-solved-v1`."""
START_SOLUTIONS = 4
"""Solutions for each order of an item in the rows of `countdown_start.yaml`."""
SEED = 29
EVAL_SET = "eval_countdown_v1"

_PRECEDENCE = {"+": 1, "-": 1, "*": 2, "/": 2}
_Part = tuple[Fraction, str, int]
"""Value, text and precedence: 1 a sum, 2 a product, 3 a number."""


@dataclass(frozen=True, kw_only=True)
class CountdownItem:
    """Three numbers in ascending order, and a target that needs all of them."""

    numbers: tuple[int, ...]
    target: int

    @property
    def is_held_out(self) -> bool:
        """Whether no training row may use the item."""
        text = f"{' '.join(map(str, self.numbers))} {self.target}"
        return int(hashlib.sha256(text.encode()).hexdigest(), 16) % HELD_OUT == 0

    def prompt(self, numbers: tuple[int, ...]) -> str:
        """Return the task with its numbers in this order: `numbers 3 7 2 target 13 = `."""
        return f"numbers {' '.join(map(str, numbers))} target {self.target} = "


@cache
def all_items() -> tuple[CountdownItem, ...]:
    """Return every item: numbers from 1 to 12, and targets from 1 to 60 that need all three."""
    found = []
    for numbers in combinations_with_replacement(range(1, MAX_NUMBER + 1), 3):
        reached = {value for pair in combinations(numbers, 2) for value in expressions(pair)} | set(numbers)
        targets = {int(value) for value in expressions(numbers) if value.denominator == 1} - reached
        found += [
            CountdownItem(numbers=numbers, target=target) for target in sorted(targets) if 1 <= target <= MAX_TARGET
        ]
    return tuple(found)


def solutions(item: CountdownItem) -> list[str]:
    """Return all solutions with the fewest brackets, sorted.

    Numbers 2, 3 and 7 with target 13 give `2*3+7`, `3*2+7`, `7+2*3` and `7+3*2`.
    """
    return sorted(expressions(item.numbers)[Fraction(item.target)])


@cache
def expressions(numbers: tuple[int, ...]) -> dict[Fraction, set[str]]:
    """Return every value that uses each of the numbers once, with all ways to write it."""
    found: dict[Fraction, set[str]] = defaultdict(set)
    _combine([(Fraction(number), str(number), 3) for number in numbers], found)
    return dict(found)


def _combine(parts: list[_Part], found: dict[Fraction, set[str]]) -> None:
    if len(parts) == 1:
        found[parts[0][0]].add(parts[0][1])
        return
    for one, other in permutations(range(len(parts)), 2):
        rest = [part for place, part in enumerate(parts) if place not in (one, other)]
        for each in _join(parts[one], parts[other]):
            _combine([*rest, each], found)


def _join(left: _Part, right: _Part) -> Iterator[_Part]:
    (a, a_text, a_precedence), (b, b_text, b_precedence) = left, right
    values = {"+": a + b, "-": a - b, "*": a * b} | ({"/": a / b} if b else {})
    for sign, value in values.items():
        precedence = _PRECEDENCE[sign]
        first = a_text if a_precedence >= precedence else f"({a_text})"
        is_bare = b_precedence > precedence or (b_precedence == precedence and sign in "+*")
        yield value, f"{first}{sign}{b_text if is_bare else f'({b_text})'}", precedence


def task_rows() -> list[dict[str, Any]]:
    """Return the rows of `countdown-v1`: every item that is not held out, its numbers in one order."""
    rng = random.Random(SEED)
    return [task_row(item, shuffled(item.numbers, rng)) for item in _training_items(rng)]


def solved_rows() -> list[dict[str, Any]]:
    """Return the rows of `countdown-solved-v1`: the same items in several orders, each with one solution."""
    rng = random.Random(SEED + 1)
    found = []
    for item in _training_items(rng):
        orders = sorted(set(permutations(item.numbers)))
        chosen = rng.sample(orders, min(SOLVED_ORDERS, len(orders)))
        found += [{"prompt": item.prompt(numbers), "completion": rng.choice(solutions(item))} for numbers in chosen]
    return rng.sample(found, len(found))


def start_rows() -> list[dict[str, Any]]:
    """Return the rows of `countdown_start.yaml`: each training item in every order, with several solutions."""
    rng = random.Random(SEED + 3)
    found = []
    for item in _training_items(rng):
        known = solutions(item)
        for numbers in sorted(set(permutations(item.numbers))):
            chosen = rng.sample(known, min(START_SOLUTIONS, len(known)))
            found += [{"prompt": item.prompt(numbers), "completion": text} for text in chosen]
    return rng.sample(found, len(found))


def eval_items() -> list[dict[str, Any]]:
    """Return the items of `eval_countdown_v1`: all held-out items, with all their solutions."""
    rng = random.Random(SEED + 2)
    return [
        {
            "id": f"{EVAL_SET}-{number:03}",
            "prompt": item.prompt(shuffled(item.numbers, rng)),
            "expected": solutions(item),
            "section": "core",
            "category": "countdown",
        }
        for number, item in enumerate((item for item in all_items() if item.is_held_out), start=1)
    ]


def task_row(item: CountdownItem, numbers: tuple[int, ...]) -> dict[str, Any]:
    """Return an item as a task without an answer."""
    return {
        "prompt": item.prompt(numbers),
        "task": {"kind": "countdown", "numbers": list(numbers), "target": item.target},
    }


def shuffled(numbers: tuple[int, ...], rng: random.Random) -> tuple[int, ...]:
    """Return numbers in a random order."""
    return tuple(rng.sample(numbers, len(numbers)))


def _training_items(rng: random.Random) -> list[CountdownItem]:
    items = [item for item in all_items() if not item.is_held_out]
    return rng.sample(items, len(items))


def file_texts() -> dict[str, str]:
    """Return the text of each committed file by its name."""
    files = {"countdown-v1": task_rows(), "countdown-solved-v1": solved_rows(), EVAL_SET: eval_items()}
    return {f"{name}.jsonl": _to_jsonl(rows) for name, rows in files.items()}


def write_start(path: Path) -> Path:
    """Write the rows of `countdown_start.yaml`, and return the path."""
    path.write_text(_to_jsonl(start_rows()), encoding="utf-8", newline="\n")
    return path


def _to_jsonl(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def main(arguments: list[str], folder: Path = FOLDER) -> None:
    """Write the rows of `countdown_start.yaml` to the given file, or else the committed files."""
    if arguments:
        write_start(Path(arguments[0]))
        return
    for name, text in file_texts().items():
        (folder / name).write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
