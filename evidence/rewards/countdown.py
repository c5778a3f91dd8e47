"""`countdown`: 1 where the answer computes the row's target from its numbers, each used once at most, else 0.

A row states the task and no answer, since there are many: `{"prompt": "numbers 3 7 2 target 13 = ", "task": {"kind":
"countdown", "numbers": [3, 7, 2], "target": 13}}`.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from functools import partial
from typing import Any

from evidence.rewards.options import RewardOptions
from evidence.rewards.reward import Attempt, RewardRule, Row
from evidence.scores.reading import Scoring

KIND = "countdown"
LONGEST = 200
"""Characters of an answer; a longer one is worth 0."""

_EXPRESSION = re.compile(r"[0-9+\-*/() ]+")


def reaches_target(attempt: Attempt, *, scoring: Scoring) -> float:
    """Return 1 where the answer is an expression of the row's numbers and + - * / with the target as value, else 0.

    Fractions are exact, a division by zero is worth 0, and nothing may stand beside the expression. Numbers 3, 7, 2
    with the target 13: `7 * 2 - 1` is worth 0 (there is no 1), `3 * 2 + 7` is worth 1, and so is `7 + 3 * 2`.
    """
    task, answer = attempt.row["task"], scoring.read(attempt.text)
    tree = None if answer is None else expression_of(answer.strip())
    if tree is None or Counter(_numbers(tree)) - Counter(task["numbers"]):
        return 0.0
    try:
        return float(_value(tree) == task["target"])
    except ZeroDivisionError:
        return 0.0


def expression_of(text: str) -> ast.expr | None:
    """Return an expression of whole numbers, brackets and + - * / between two, or None if it is something else."""
    if len(text) > LONGEST or not _EXPRESSION.fullmatch(text):
        return None
    try:
        tree = ast.parse(text, mode="eval").body
    except SyntaxError:
        return None
    return tree if _is_plain(tree) else None


def lacks_task(row: Row) -> str | None:
    """Return what a row lacks of numbers and a target, or None."""
    task: Any = row.get("task")
    if not isinstance(task, dict) or task.get("kind") != KIND:
        return f"has no task of the kind {KIND}"
    numbers = task.get("numbers")
    if not isinstance(numbers, list) or not numbers or not all(map(_is_count, numbers)):
        return "has a countdown task without numbers, which are whole and 0 or more"
    return None if _is_count(task.get("target")) else "has a countdown task without a target, a whole number"


def countdown_of(_options: RewardOptions, scoring: Scoring) -> RewardRule:
    """Return the reward; it takes no option."""
    return RewardRule(value=partial(reaches_target, scoring=scoring), lacks=lacks_task)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_plain(node: ast.expr) -> bool:
    match node:
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() | ast.Mult() | ast.Div(), right=right):
            return _is_plain(left) and _is_plain(right)
        case ast.Constant(value=int()):
            return True
    return False


def _numbers(node: ast.expr) -> Iterator[int]:
    return (each.value for each in ast.walk(node) if isinstance(each, ast.Constant) and isinstance(each.value, int))


def _value(node: ast.expr) -> Fraction:
    match node:
        case ast.BinOp(left=left, op=op, right=right):
            one, other = _value(left), _value(right)
            if isinstance(op, ast.Add):
                return one + other
            if isinstance(op, ast.Sub):
                return one - other
            return one * other if isinstance(op, ast.Mult) else one / other
        case ast.Constant(value=int(number)):
            return Fraction(number)
    message = f"not an expression of numbers: {ast.dump(node)}"
    raise TypeError(message)
