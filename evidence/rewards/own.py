"""`module:function`: a reward of the user's own, from an `Attempt` to a number of the range that is set."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from evidence.rewards.options import RewardOptions
from evidence.rewards.reward import RewardRule
from evidence.scores.reading import Scoring
from schemas.problems import problem_of

WIDEST = 1e6
"""Largest end of a range."""


def own_of(options: RewardOptions, _scoring: Scoring) -> RewardRule:
    """Return the reward; its range is `low` to `high`, 0 to 1 unless set."""
    low, high = options.number("low", 0.0, -WIDEST, WIDEST), options.number("high", 1.0, -WIDEST, WIDEST)
    if high <= low:
        options.refuse(f"is {high:g}, and low is {low:g}", "high")
    function = function_of(options) if options.executes else None
    return RewardRule(value=function or _never, low=low, high=high, is_ours=False)


def function_of(options: RewardOptions) -> Callable[..., Any] | None:
    """Return the function that a reward's name means; None where it cannot be called, which is added as a problem."""
    module, _, name = options.name.partition(":")
    try:
        with working_folder_first():
            found: Any = getattr(importlib.import_module(module), name)
        inspect.signature(found).bind(object())
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - a module of a user's own may raise anything, SystemExit too
        what = f"The reward {options.name} cannot be called: {type(error).__name__}: {error}."
        pointer = options.pointer.removesuffix("/options") + "/name"
        options.problems.append(problem_of("TP904", file=options.file, pointer=pointer, what=what))
        return None
    function: Callable[..., Any] = found
    return function


@contextmanager
def working_folder_first() -> Iterator[None]:
    """Let Python look into the working folder first, as `python -m` does and an installed command does not."""
    folder = str(Path.cwd())
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)


def _never(_attempt: Any) -> float:
    message = "the function was not imported"
    raise RuntimeError(message)
