"""What a generated problem is, and what a kind of problem must offer. The kinds are in the files beside this one."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Difficulty = Literal["easy", "medium", "hard"]

DIFFICULTIES: tuple[Difficulty, ...] = ("easy", "medium", "hard")


@dataclass(frozen=True, kw_only=True)
class Step:
    """One line of reasoning."""

    type: str
    """What the step does: setup, compute or conclude."""
    content: str
    """The line itself; every statement in it is true."""


@dataclass(frozen=True, kw_only=True)
class ReasoningProblem:
    """A question with the reasoning that leads to its one answer."""

    prompt: str
    """The question, as the model sees it."""
    steps: tuple[Step, ...]
    """The reasoning, in order; at least one step."""
    answer: str
    """What stands between the answer tags."""


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A family of problems: how to draw one, and how to solve one that is given as text."""

    name: str
    """Its own name, for example `addition`."""
    category: str
    """The group it is reported under, for example `arithmetic`."""
    draw: Callable[[random.Random, Difficulty], ReasoningProblem]
    """Draws a problem; the same state of the random source gives the same problem."""
    verify: Callable[[str], str | None]
    """Solves a prompt from its text alone, without the code that drew it. None: not a prompt of this kind."""


def compute(*lines: str) -> tuple[Step, ...]:
    """Return lines as steps that compute something."""
    return tuple(Step(type="compute", content=line) for line in lines)


def setup(line: str) -> tuple[Step, ...]:
    """Return the one step that states what has to be worked out."""
    return (Step(type="setup", content=line),)
