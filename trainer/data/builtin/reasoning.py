"""Generator of `dev-reasoning-v2`, `dev-stories-v1` and their evaluation sets: short questions with worked steps.

Calculations are written column by column from the right, as at school, and the answer is read off the columns. Tests
write the committed files again and solve every prompt a second time with Python's arithmetic.
"""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import islice, zip_longest
from typing import Any, Literal, NamedTuple

from trainer.data.builtin import FOLDER

Difficulty = Literal["easy", "medium", "hard"]
DIFFICULTIES: tuple[Difficulty, ...] = ("easy", "medium", "hard")

Step = tuple[str, str]  # type of a line of reasoning (setup, compute) and its text


class Problem(NamedTuple):
    """A question with the reasoning that leads to its answer."""

    prompt: str
    steps: tuple[Step, ...]
    answer: str


class Kind(NamedTuple):
    """A family of problems, and the group under which its scores are reported."""

    name: str
    category: str
    draw: Callable[[random.Random, Difficulty], Problem]


def compute(*lines: str) -> tuple[Step, ...]:
    """Return steps that compute something."""
    return tuple(("compute", line) for line in lines)


def setup(line: str) -> tuple[Step, ...]:
    """Return the step that describes the calculation."""
    return (("setup", line),)


# Written arithmetic. Each function returns the lines, ones first, and the result.

PLACES = ("Ones", "Tens", "Hundreds", "Thousands")
Worked = tuple[tuple[Step, ...], str]


def add(a: int, b: int) -> Worked:
    """Work out a + b: 47 + 38 is `Ones: 7 + 8 = 15, carry 1.`, `Tens: 4 + 3 + 1 = 8.`, result 85."""
    lines: list[str] = []
    carry, columns = 0, _columns(a, b)
    for place, (x, y) in zip(PLACES, columns, strict=False):
        total = x + y + carry
        tail = ", carry 1." if total > 9 and len(lines) + 1 < len(columns) else "."
        lines.append(f"{place}: {x} + {y}{' + 1' * carry} = {total}{tail}")
        carry = int(total > 9)
    return compute(*lines), str(a + b)


def subtract(a: int, b: int) -> Worked:
    """Work out a - b for a >= b: 52 - 17 is `Ones: 12 - 7 = 5, borrow 1.`, `Tens: 5 - 1 - 1 = 3.`, result 35."""
    lines, borrow = [], 0
    for place, (x, y) in zip(PLACES, _columns(a, b), strict=False):
        lent = 10 if x - y - borrow < 0 else 0
        left = x + lent - y - borrow
        lines.append(f"{place}: {x + lent} - {y}{' - 1' * borrow} = {left}{', borrow 1.' if lent else '.'}")
        borrow = int(lent > 0)
    return compute(*lines), str(a - b)


def multiply(a: int, digit: int) -> Worked:
    """Work out a × digit: 47 × 6 is `Ones: 7 × 6 = 42, carry 4.`, `Tens: 4 × 6 = 24, 24 + 4 = 28.`, result 282."""
    lines: list[str] = []
    carry = 0
    for place, x in zip(PLACES, _digits(a), strict=False):
        product = x * digit
        term = f", {product} + {carry} = {product + carry}" if carry else ""
        carry = (product + carry) // 10
        tail = f", carry {carry}." if carry and len(lines) + 1 < len(str(a)) else "."
        lines.append(f"{place}: {x} × {digit} = {product}{term}{tail}")
    return compute(*lines), str(a * digit)


def _digits(number: int) -> list[int]:
    return [int(digit) for digit in reversed(str(number))]


def _columns(a: int, b: int) -> list[tuple[int, int]]:
    return list(zip_longest(_digits(a), _digits(b), fillvalue=0))


# Bare numbers.

_OPERANDS: Mapping[Difficulty, tuple[int, int]] = {"easy": (11, 49), "medium": (11, 99), "hard": (101, 999)}
_FACTORS: Mapping[Difficulty, tuple[int, int]] = {"easy": (2, 3), "medium": (4, 6), "hard": (7, 9)}


def draw_addition(rng: random.Random, difficulty: Difficulty) -> Problem:
    """Draw a sum of two numbers of equal length."""
    low, high = _OPERANDS[difficulty]
    a, b = rng.randint(low, high), rng.randint(low, high)
    return Problem(rng.choice((f"What is {a} + {b}?", f"Add {a} and {b}.")), *add(a, b))


def draw_subtraction(rng: random.Random, difficulty: Difficulty) -> Problem:
    """Draw a difference of two unequal numbers of equal length."""
    low, high = _OPERANDS[difficulty]
    b, a = sorted(rng.sample(range(low, high + 1), 2))
    return Problem(rng.choice((f"What is {a} - {b}?", f"Subtract {b} from {a}.")), *subtract(a, b))


def draw_multiplication(rng: random.Random, difficulty: Difficulty) -> Problem:
    """Draw a product of a two-digit number and a digit."""
    a, digit = rng.randint(11, 99), rng.randint(*_FACTORS[difficulty])
    return Problem(rng.choice((f"What is {a} × {digit}?", f"Multiply {a} by {digit}.")), *multiply(a, digit))


def draw_comparison(rng: random.Random, difficulty: Difficulty) -> Problem:
    """Draw a comparison of two-digit numbers, of three-digit numbers, or of numbers with equal first digits."""
    if difficulty == "easy":
        a, b = rng.sample(range(11, 100), 2)
    elif difficulty == "medium":
        a, b = rng.sample(range(101, 1000), 2)
    else:
        size = rng.choice((10, 100))
        start = rng.randrange(200, 1000, size)
        a, b = rng.sample(range(start, start + size), 2)
    relation = rng.choice(("larger", "smaller"))
    steps, sign = compare_digits(a, b)
    is_first = (sign == ">") == (relation == "larger")
    if rng.random() < 0.5:
        return Problem(f"Is {a} {relation} than {b}?", steps, "yes" if is_first else "no")
    steps += compute(f"The {'first' if is_first else 'second'} is {relation}.")
    return Problem(f"Which is {relation}, {a} or {b}?", steps, str(a if is_first else b))


def compare_digits(a: int, b: int) -> Worked:
    """Compare two numbers of equal length from the left: 473 and 458 are `Hundreds: 4 = 4.`, `Tens: 7 > 5.`, `>`."""
    lines, sign = [], "="
    for place, x, y in zip(reversed(PLACES[: len(str(a))]), str(a), str(b), strict=True):
        sign = "=" if x == y else ">" if x > y else "<"
        lines.append(f"{place}: {x} {sign} {y}.")
        if sign != "=":
            break
    return compute(*lines), sign


def draw_edge_case(rng: random.Random, difficulty: Difficulty) -> Problem:
    """Draw a question with 0 or 1 if easy, with equal numbers or a leap year if medium, below zero if hard."""
    if difficulty == "easy":
        n = rng.randint(2, 999)
        cases = (
            (f"{n} + 0", "Adding 0 changes nothing.", n),
            (f"0 + {n}", "Adding 0 changes nothing.", n),
            (f"{n} - 0", "Subtracting 0 changes nothing.", n),
            (f"{n} - {n}", "A number minus itself is 0.", 0),
            (f"{n} × 0", "Anything times 0 is 0.", 0),
            (f"{n} × 1", "Multiplying by 1 changes nothing.", n),
        )
        question, reason, answer = rng.choice(cases)
        return Problem(f"What is {question}?", compute(reason), str(answer))
    if difficulty == "hard":
        a, b = sorted(rng.sample(range(11, 100), 2))
        steps, result = subtract(b, a)
        return Problem(f"What is {a} - {b}?", setup(f"{a} - {b} = -({b} - {a}).") + steps, f"-{result}")
    if rng.choice(("equal", "leap year")) == "equal":
        n = rng.randint(11, 999)
        relation = rng.choice(("larger", "smaller"))
        steps = compare_digits(n, n)[0] + compute("Both are equal.")
        return Problem(f"Which is {relation}, {n} or {n}?", steps, "equal")
    year = rng.randint(2001, 2099)
    fours, rest = divmod(year % 100, 4)
    line = f"{year % 100} = {fours} × 4 + {rest}."
    return Problem(f"Is {year} a leap year?", compute(line), "no" if rest else "yes")


# Measures. Dates avoid February, whose length varies.

_LENGTHS = {
    "March": 31, "April": 30, "May": 31, "June": 30, "July": 31,
    "August": 31, "September": 30, "October": 31, "November": 30,
}  # fmt: skip
_MONTHS = (*_LENGTHS, "December")
_UNITS = (("m", "cm", 100), ("km", "m", 1000), ("cm", "mm", 10), ("kg", "g", 1000))
_TIMES = (("weeks", "days", 7, ""), ("hours", "minutes", 6, "0"), ("minutes", "seconds", 6, "0"))


def draw_date(rng: random.Random, difficulty: Difficulty) -> Problem:
    """Draw a question for a later date: in the same month if easy, in the next month if hard."""
    month = rng.choice(tuple(_LENGTHS))
    length = _LENGTHS[month]
    is_same_month = difficulty == "easy" or (difficulty == "medium" and rng.random() < 0.5)
    days = rng.randint(11, 25)
    day = rng.randint(2, length - days) if is_same_month else rng.randint(length - days + 1, length - 1)
    worked, total = add(day, days)
    steps, prompt = setup(f"{month} has {length} days.") + worked, f"What date is {days} days after {day} {month}?"
    if is_same_month:
        return Problem(prompt, steps, f"{total} {month}")
    rest = int(total) - length
    steps += compute(f"{total} - {length} = {rest}.")
    return Problem(prompt, steps, f"{rest} {_MONTHS[_MONTHS.index(month) + 1]}")


def draw_duration(rng: random.Random, difficulty: Difficulty) -> Problem:
    """Draw a question about a time span below an hour; across the full hour unless easy."""
    hour = rng.randint(1, 22)
    if difficulty == "easy":
        start = rng.randint(11, 48)
        end = rng.randint(start + 11, 59)
    else:
        start = rng.randint(11, 59)
        end = rng.randint(max(60, start + 11), min(99, start + 59))
    if rng.choice(("span", "end")) == "span":
        steps, answer = subtract(end, start)
        prompt = f"How many minutes from {_clock(hour, start)} to {_clock(hour, end)}?"
        return Problem(prompt, setup(f"{_clock(hour, end)} is {hour}:00 + {end}.") + steps, answer)
    steps, total = add(start, end - start)
    comparison = f"{end} - 60 = {end - 60}" if end >= 60 else f"{end} < 60"
    prompt = f"What time is {end - start} minutes after {_clock(hour, start)}?"
    return Problem(prompt, steps + compute(f"{comparison}: {_clock(hour, end)}."), _clock(hour, int(total)))


def _clock(hour: int, minute: int) -> str:
    return f"{hour + minute // 60}:{minute % 60:02}"


def draw_conversion(rng: random.Random, difficulty: Difficulty) -> Problem:
    """Draw a conversion: to a smaller unit if easy, to a larger one if medium, of time if hard."""
    if difficulty == "hard":
        large, small, digit, zero = rng.choice(_TIMES)
        number = rng.randint(11, 99)
        steps, product = multiply(number, digit)
        steps = setup(f"1 {large.removesuffix('s')} = {digit}{zero} {small}.") + steps
        steps += compute(f"{product} × 10 = {product}0.") if zero else ()
        return Problem(f"How many {small} are {number} {large}?", steps, product + zero)
    large, small, factor = rng.choice(_UNITS)
    number = rng.randint(2, 999)
    first, product = setup(f"1 {large} = {factor} {small}."), f"{number}{str(factor)[1:]}"
    if difficulty == "easy":
        steps = first + compute(f"{number} × {factor} = {product}.")
        return Problem(f"How many {small} are {number} {large}?", steps, product)
    steps = first + compute(f"{product} / {factor} = {number}.")
    return Problem(f"How many {large} are {product} {small}?", steps, str(number))


# Stories of one and of two steps.

_NAMES = ("Mia", "Tom", "Ana", "Ben")
_THINGS = ("apples", "books", "coins", "cards")
_LOWEST = 11
_HIGHEST: Mapping[Difficulty, int] = {"easy": 49, "medium": 79, "hard": 99}


def draw_story(rng: random.Random, difficulty: Difficulty) -> Problem:
    """Draw a story about buying, giving away or filling boxes."""
    name, things, highest = rng.choice(_NAMES), rng.choice(_THINGS), _HIGHEST[difficulty]
    kind = rng.choice(("buy", "buy", "give", "give", "boxes"))
    if kind == "buy":
        a, b = rng.randint(_LOWEST, highest), rng.randint(_LOWEST, highest)
        answer, steps = _buy(a, b)
        prompt = f"{name} has {a} {things} and buys {b} more. How many {things} does {name} have?"
    elif kind == "give":
        b, a = sorted(rng.sample(range(_LOWEST, highest + 1), 2))
        answer, steps = _give_away(a, b)
        prompt = f"{name} has {a} {things} and gives away {b}. How many {things} are left?"
    else:
        boxes, each = rng.randint(2, 9), rng.randint(_LOWEST, highest)
        worked, product = multiply(each, boxes)
        answer, steps = int(product), setup(f"Total: {each} × {boxes}.") + worked
        prompt = f"{name} fills {boxes} boxes with {each} {things} each. How many {things} is that?"
    return Problem(prompt, steps, str(answer))


def draw_two_step_story(rng: random.Random, difficulty: Difficulty) -> Problem:
    """Draw a story with a purchase and a gift in either order; all numbers have two digits."""
    name, things, highest = rng.choice(_NAMES), rng.choice(_THINGS), _HIGHEST[difficulty]
    if rng.random() < 0.5:
        start = rng.randint(_LOWEST, highest - _LOWEST)
        more = rng.randint(_LOWEST, highest - start)
        fewer = rng.randint(_LOWEST, start + more - 1)
        events = f"buys {more} more and gives away {fewer}"
        total, steps = _buy(start, more)
        answer, rest = _give_away(total, fewer)
    else:
        start = rng.randint(_LOWEST + 1, highest)
        fewer = rng.randint(_LOWEST, start - 1)
        more = rng.randint(_LOWEST, highest - (start - fewer))
        events = f"gives away {fewer} and buys {more} more"
        left, steps = _give_away(start, fewer)
        answer, rest = _buy(left, more)
    prompt = f"{name} has {start} {things}, {events}. How many {things} does {name} have?"
    return Problem(prompt, steps + rest, str(answer))


def _buy(start: int, more: int) -> tuple[int, tuple[Step, ...]]:
    worked, total = add(start, more)
    return int(total), setup(f"Total: {start} + {more}.") + worked


def _give_away(start: int, fewer: int) -> tuple[int, tuple[Step, ...]]:
    worked, rest = subtract(start, fewer)
    return int(rest), setup(f"Left: {start} - {fewer}.") + worked


# Drawing sets of problems.

Shares = tuple[tuple[Kind, int], ...]  # kinds, each with its share of a set in percent

SHARES: Shares = (
    (Kind("addition", "arithmetic", draw_addition), 16),
    (Kind("subtraction", "arithmetic", draw_subtraction), 16),
    (Kind("multiplication", "arithmetic", draw_multiplication), 8),
    (Kind("word_problem", "word_problem", draw_story), 18),
    (Kind("comparison", "comparison", draw_comparison), 10),
    (Kind("date", "date", draw_date), 9),
    (Kind("duration", "duration", draw_duration), 7),
    (Kind("unit_conversion", "unit_conversion", draw_conversion), 8),
    (Kind("edge_case", "edge_case", draw_edge_case), 8),
)
STORIES: Shares = ((Kind("two_step_story", "story", draw_two_step_story), 100),)
"""The kind of `dev-stories-v1`, to which a model trained on `dev-reasoning-v2` is adapted."""

DATASET = "dev-reasoning-v2"  # the dataset on which the built-in tokenizer was trained
DATASET_SHARES: Mapping[str, Shares] = {DATASET: SHARES, "dev-stories-v1": STORIES}
EVAL_SHARES: Mapping[str, Shares] = {"eval_v1": SHARES, "eval_v2": SHARES, "eval_stories_v1": STORIES}
SECTIONS = {"arithmetic": "core", "comparison": "core", "edge_case": "edge"}
"""Sections of an evaluation set by category; all others are applied."""
MAX_MISSES = 1000  # draws in a row without a new prompt after which the kinds are exhausted
MAX_DRAWS_PER_ITEM = 20

Drawn = tuple[Kind, Difficulty, Problem]


def prompt_key(prompt: str) -> str:
    """Return the words of a prompt, which ignores case, white space and punctuation.

    Arithmetic signs count as punctuation: `12 + 5` and `12 - 5` have the same key, so only one is kept.
    """
    return " ".join(re.findall(r"[a-z0-9]+", prompt.casefold()))


def draw_problems(seed: int, shares: Shares, *, excluded_keys: frozenset[str]) -> Iterator[Drawn]:
    """Yield problems in their shares, each with another `prompt_key`, and raise a ValueError once all are drawn."""
    rng = random.Random(seed)  # noqa: S311 - data, not secrets
    kinds, percent = zip(*shares, strict=True)
    used, misses = set(excluded_keys), 0
    while misses < MAX_MISSES:
        kind = rng.choices(kinds, percent)[0]
        difficulty = rng.choice(DIFFICULTIES)
        problem = kind.draw(rng, difficulty)
        key = prompt_key(problem.prompt)
        misses = misses + 1 if key in used else 0
        if not misses:
            used.add(key)
            yield kind, difficulty, problem
    message = f"seed {seed}: no new prompt in {MAX_MISSES} draws, after {len(used)} prompts drawn or excluded."
    raise ValueError(message)


def take_shares(problems: Iterator[Drawn], shares: Shares, count: int) -> list[Drawn]:
    """Take the first problems that fill the share of each kind in a set of `count`."""
    # Shares are rounded up, so the last problems drawn may be one too many.
    left = {kind.name: math.ceil(count * share / 100) for kind, share in shares}
    chosen: list[Drawn] = []
    while len(chosen) < count:
        drawn = next(problems)
        if left[drawn[0].name]:
            left[drawn[0].name] -= 1
            chosen.append(drawn)
    return chosen


def to_item(name: str, number: int, drawn: Drawn) -> dict[str, Any]:
    """Return a problem as an evaluation item."""
    kind, difficulty, problem = drawn
    return {
        "id": f"{name}-{number:03}",
        "prompt": problem.prompt,
        "expected": problem.answer,
        "section": SECTIONS.get(kind.category, "applied"),
        "category": kind.category,
        "difficulty": difficulty,
    }


def to_row(drawn: Drawn) -> dict[str, Any]:
    """Return a problem as a training row."""
    kind, difficulty, problem = drawn
    return {
        "trace_version": "2",
        "prompt": problem.prompt,
        "final_answer": problem.answer,
        "steps": [{"i": i, "type": type_, "content": content} for i, (type_, content) in enumerate(problem.steps)],
        "meta": {"category": kind.category, "kind": kind.name, "difficulty": difficulty},
    }


def eval_prompts() -> frozenset[str]:
    """Return the prompts of the committed evaluation sets."""
    files = (FOLDER / f"{name}.jsonl" for name in EVAL_SHARES)
    lines = (line for file in files for line in file.read_text(encoding="utf-8").splitlines())
    return frozenset(json.loads(line)["prompt"] for line in lines)


def generate_rows(dataset: str, count: int, seed: int, *, exclude_prompts: frozenset[str]) -> list[dict[str, Any]]:
    """Generate rows of a built-in dataset, none with a prompt of an evaluation set or an excluded one.

    Prompts are compared by `prompt_key`; if there are too few, raise a ValueError. The committed rows have seeds of
    their own.
    """
    keys = frozenset(map(prompt_key, exclude_prompts | eval_prompts()))
    return [to_row(drawn) for drawn in islice(draw_problems(seed, DATASET_SHARES[dataset], excluded_keys=keys), count)]


def fresh_items(
    eval_set: str | None, dataset: str, count: int, seed: int, *, training: Collection[str]
) -> tuple[list[dict[str, Any]], int] | None:
    """Draw new evaluation items, with the shares of an evaluation set or else of a dataset.

    Return items whose prompts are not in `training`, and the number of problems that were excluded because they are, or
    None if neither name is built in. If there are too few prompts, raise a ValueError.
    """
    shares = EVAL_SHARES.get(eval_set or "") or DATASET_SHARES.get(dataset)
    if shares is None:
        return None
    seen = frozenset(map(prompt_key, training))
    excluded = 0

    def draw_new() -> Iterator[Drawn]:
        nonlocal excluded
        most = MAX_DRAWS_PER_ITEM * count + len(seen)
        known = frozenset(map(prompt_key, eval_prompts()))
        for drawn in islice(draw_problems(seed, shares, excluded_keys=known), most):
            if prompt_key(drawn[2].prompt) in seen:
                excluded += 1
            else:
                yield drawn
        message = f"a kind of problem is exhausted after {most:,} draws."
        raise ValueError(message)

    chosen = take_shares(draw_new(), shares, count)
    return [to_item(f"seed-{seed}", number, each) for number, each in enumerate(chosen, 1)], excluded
