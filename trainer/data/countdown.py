"""Countdown: reach a number from three given ones. Tasks without a gold answer, a solver, and items held out by hash.

`python -m trainer.data.countdown` rewrites `countdown-v1` (tasks that the reward `countdown` judges),
`countdown-solved-v1` (the same items with solutions, for a supervised start) and `eval_countdown_v1` (items that are
in neither). `python -m trainer.data.countdown rows.jsonl` writes what `trainer/configs/countdown_start` was taught: the
same items in every order, with up to four solutions each. An item is three numbers, in any order, and a target; its
SHA-256 decides for ever whether it is held out.
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

FOLDER = Path(__file__).parent
LARGEST_NUMBER = 12
LARGEST_TARGET = 60
HELD_OUT = 10
"""One item of so many is held out."""
SOLVED_ORDERS = 2
"""Orders of its numbers in which an item stands in `countdown-solved-v1`, where it has as many."""
START_SOLUTIONS = 4
"""Solutions of each order of an item that the start is taught, where there are as many."""
SEED = 29
EVAL_SET = "eval_countdown_v1"

_STRENGTH = {"+": 1, "-": 1, "*": 2, "/": 2}


@dataclass(frozen=True, kw_only=True)
class CountdownItem:
    """Three numbers in ascending order, and a target that needs all of them."""

    numbers: tuple[int, ...]
    target: int

    @property
    def is_held_out(self) -> bool:
        """Whether no training row may have it: its SHA-256 is a multiple of `HELD_OUT`."""
        text = f"{' '.join(map(str, self.numbers))} {self.target}"
        return int(hashlib.sha256(text.encode()).hexdigest(), 16) % HELD_OUT == 0

    def prompt(self, numbers: tuple[int, ...]) -> str:
        """Return the task in words, with its numbers in this order: `numbers 3 7 2 target 13 = `."""
        return f"numbers {' '.join(map(str, numbers))} target {self.target} = "


@cache
def all_items() -> tuple[CountdownItem, ...]:
    """Return every item: numbers from 1 to 12, targets from 1 to 60 that all three reach and no two of them."""
    found = []
    for numbers in combinations_with_replacement(range(1, LARGEST_NUMBER + 1), 3):
        reached = {value for pair in combinations(numbers, 2) for value in expressions(pair)} | set(numbers)
        targets = {int(value) for value in expressions(numbers) if value.denominator == 1} - reached
        found += [
            CountdownItem(numbers=numbers, target=target) for target in sorted(targets) if 1 <= target <= LARGEST_TARGET
        ]
    return tuple(found)


def solutions(item: CountdownItem) -> list[str]:
    """Return every way to write a solution with the fewest brackets, in alphabetical order.

    Of the numbers 2, 3 and 7 with the target 13: `2*3+7`, `3*2+7`, `7+2*3` and `7+3*2`.
    """
    return sorted(expressions(item.numbers)[Fraction(item.target)])


@cache
def expressions(numbers: tuple[int, ...]) -> dict[Fraction, set[str]]:
    """Return what can be computed from all of the numbers, each used once, with every way to write it."""
    found: dict[Fraction, set[str]] = defaultdict(set)
    _combine([(Fraction(number), str(number), 3) for number in numbers], found)
    return dict(found)


_Part = tuple[Fraction, str, int]
"""A value, how it is written, and how strongly that holds together: 1 a sum, 2 a product, 3 a number."""


def _combine(parts: list[_Part], found: dict[Fraction, set[str]]) -> None:
    if len(parts) == 1:
        found[parts[0][0]].add(parts[0][1])
        return
    for one, other in permutations(range(len(parts)), 2):
        rest = [part for place, part in enumerate(parts) if place not in (one, other)]
        for each in _join(parts[one], parts[other]):
            _combine([*rest, each], found)


def _join(left: _Part, right: _Part) -> Iterator[_Part]:
    (a, a_text, a_strength), (b, b_text, b_strength) = left, right
    values = {"+": a + b, "-": a - b, "*": a * b} | ({"/": a / b} if b else {})
    for sign, value in values.items():
        strength = _STRENGTH[sign]
        before = a_text if a_strength >= strength else f"({a_text})"
        is_free = b_strength > strength or (b_strength == strength and sign in "+*")
        yield value, f"{before}{sign}{b_text if is_free else f'({b_text})'}", strength


def task_rows() -> list[dict[str, Any]]:
    """Return the rows of `countdown-v1`: every item that is not held out, its numbers in one order."""
    draw = random.Random(SEED)  # noqa: S311 - data, not secrets
    return [task_row(item, in_some_order(item.numbers, draw)) for item in _for_training(draw)]


def solved_rows() -> list[dict[str, Any]]:
    """Return the rows of `countdown-solved-v1`: the same items, each in several orders with one of its solutions."""
    draw = random.Random(SEED + 1)  # noqa: S311 - data, not secrets
    found = []
    for item in _for_training(draw):
        orders = sorted(set(permutations(item.numbers)))
        chosen = draw.sample(orders, min(SOLVED_ORDERS, len(orders)))
        found += [{"prompt": item.prompt(numbers), "completion": draw.choice(solutions(item))} for numbers in chosen]
    return draw.sample(found, len(found))


def start_rows() -> list[dict[str, Any]]:
    """Return what the start of `grpo_demo.yaml` is taught: each training item in every order, solved several ways."""
    draw = random.Random(SEED + 3)  # noqa: S311 - data, not secrets
    found = []
    for item in _for_training(draw):
        known = solutions(item)
        for numbers in sorted(set(permutations(item.numbers))):
            chosen = draw.sample(known, min(START_SOLUTIONS, len(known)))
            found += [{"prompt": item.prompt(numbers), "completion": text} for text in chosen]
    return draw.sample(found, len(found))


def eval_items() -> list[dict[str, Any]]:
    """Return the items of `eval_countdown_v1`: all that are held out, with every solution in the fewest brackets."""
    draw = random.Random(SEED + 2)  # noqa: S311 - data, not secrets
    held_out = [item for item in all_items() if item.is_held_out]
    return [
        {
            "id": f"{EVAL_SET}-{number:03}",
            "prompt": item.prompt(in_some_order(item.numbers, draw)),
            "expected": solutions(item),
            "section": "core",
            "category": "countdown",
        }
        for number, item in enumerate(held_out, start=1)
    ]


def task_row(item: CountdownItem, numbers: tuple[int, ...]) -> dict[str, Any]:
    """Return an item as a row that states the task and no answer."""
    return {
        "prompt": item.prompt(numbers),
        "task": {"kind": "countdown", "numbers": list(numbers), "target": item.target},
    }


def in_some_order(numbers: tuple[int, ...], draw: random.Random) -> tuple[int, ...]:
    """Return numbers in another order."""
    return tuple(draw.sample(numbers, len(numbers)))


def _for_training(draw: random.Random) -> list[CountdownItem]:
    items = [item for item in all_items() if not item.is_held_out]
    return draw.sample(items, len(items))


def file_texts() -> dict[str, str]:
    """Return the content of each committed file by its name."""
    files = {"countdown-v1": task_rows(), "countdown-solved-v1": solved_rows(), EVAL_SET: eval_items()}
    return {f"{name}.jsonl": _lines(rows) for name, rows in files.items()}


def write_start(path: Path) -> Path:
    """Write what the start is taught to a file, and return its path."""
    path.write_text(_lines(start_rows()), encoding="utf-8", newline="\n")
    return path


def _lines(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def main(arguments: list[str], folder: Path = FOLDER) -> None:
    """Write the start's rows to the file that is named, or the committed files into a folder."""
    if arguments:
        write_start(Path(arguments[0]))
        return
    for name, text in file_texts().items():
        (folder / name).write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
