"""Problems: what is wrong, where, why, and how to fix it.

A check builds a `Problem` with `problem_of`, which takes title, reason and fix of its code from `rules.toml`.
`ProblemError` carries problems to the user; `schemas.render` formats them.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from itertools import islice
from typing import Literal

Severity = Literal["error", "warning", "note"]
Action = Literal["allow_partial", "redact", "resume"]
"""What trainproof can do about a problem: an option or command on the terminal, a button on a page."""

Lines = Callable[[str], int | None]
"""Maps a JSON Pointer to the line of that value, counted from 1, or to None if it is unknown."""

RANK: dict[Severity, int] = {"error": 0, "warning": 1, "note": 2}

MAX_PER_KIND = 5  # maximum number of problems shown per code and file; the others are counted
INTERNAL_ERROR = 4  # exit code of a command that stopped on an error inside trainproof
FROM_RULE = "\0"  # default of `problem_of`'s `why`: the reason of the rule


@dataclass(frozen=True, kw_only=True)
class Problem:
    """An error, warning or note about a file or setting.

    Attributes:
        code: `TP` and three digits. The first digit is the family: 0 usage and configuration, 1 shape, 2 integrity,
            3 contradiction, 4 plausibility, 5 completeness, 6 hygiene, 7 device, memory and training, 8 bundles,
            9 rewards.
        severity: Error, warning or note.
        file: File or folder as the user named it; empty if there is none.
        what: What is wrong, as a sentence.
        next: What to do, as a sentence.
        why: Reason, as a sentence.
        expected: What would have been right, as a noun phrase without a full stop.
        line: Line of the file, counted from 1.
        pointer: JSON Pointer (RFC 6901) to the value; the empty string is the whole document.
        action: What trainproof can do about it.
    """

    code: str
    severity: Severity
    file: str
    what: str
    next: str
    why: str | None = None
    expected: str | None = None
    line: int | None = None
    pointer: str | None = None
    action: Action | None = None

    @property
    def key_path(self) -> str:
        """The pointer as people write it in this file; empty for the whole document."""
        return key_path(self.file, self.pointer or "")


class ProblemError(Exception):
    """Stops a command with problems for the user.

    Args:
        problems: What is wrong.
        exit_code: Exit code of the command.
    """

    def __init__(self, problems: Iterable[Problem], *, exit_code: int = 1) -> None:
        self.problems: tuple[Problem, ...] = worst_first(problems)
        self.exit_code = exit_code
        super().__init__("; ".join(problem.what for problem in self.problems))


def collect_problems(problems: list[Problem]) -> AbstractContextManager[None, bool]:
    """Suppress a `ProblemError` and append its problems to `problems`, to report the problems of several checks."""
    return _Collector(problems)


class _Collector(AbstractContextManager[None, bool]):
    # Not a generator: with an `__exit__` that returns bool, mypy knows that the code after it is reachable.
    def __init__(self, problems: list[Problem]) -> None:
        self._problems = problems

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if isinstance(error, ProblemError):
            self._problems += error.problems
        return isinstance(error, ProblemError)


def worst_first(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Sort problems by severity; the order is kept otherwise."""
    return tuple(sorted(problems, key=lambda problem: RANK[problem.severity]))


def pointer_to(path: Iterable[str | int]) -> str:
    """Return the JSON Pointer of a path: `["a/b", 0]` becomes `/a~1b/0`."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)


def key_path(file: str, pointer: str) -> str:
    """Format a JSON Pointer as people write it: `optimizer.betas[0]` in YAML and for `--set`, unchanged elsewhere."""
    if not file.endswith((".yaml", ".yml")) and not file.startswith("--"):
        return pointer
    parts = [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]
    return "".join(f"[{part}]" if part.isdecimal() else f".{part}" for part in parts).removeprefix(".")


def unknown_lines(_pointer: str) -> int | None:
    """Return None; the default `Lines`, for values that were not read from a file."""
    return None


@dataclass(frozen=True)
class Rule:
    """Title, reason, fix and action of a code, and the default severity of its problems."""

    code: str
    title: str
    why: str
    fix: str
    severity: Severity = "error"
    action: Action | None = None


@cache
def all_rules() -> dict[str, Rule]:
    """Load every rule by its code."""
    text = files("schemas").joinpath("rules.toml").read_text(encoding="utf-8")
    return {code: Rule(code, **texts) for code, texts in tomllib.loads(text).items()}


def rule(code: str) -> Rule:
    """Return the texts of a code."""
    return all_rules()[code]


def problem_of(
    code: str,
    *,
    file: str,
    what: str,
    why: str | None = FROM_RULE,
    expected: str | None = None,
    next: str | None = None,
    line: int | None = None,
    pointer: str | None = None,
    severity: Severity | None = None,
) -> Problem:
    """Build a problem; what is not given is taken from the rule of its code. A `why` of None leaves the reason out."""
    texts = rule(code)
    return Problem(
        code=code,
        severity=severity or texts.severity,
        file=file,
        what=what,
        why=texts.why if why == FROM_RULE else why,
        expected=expected,
        next=next or texts.fix,
        line=line,
        pointer=pointer,
        action=None if next else texts.action,
    )


def truncate_problems(problems: Iterable[Problem], limit: int = MAX_PER_KIND) -> Iterator[Problem]:
    """Yield at most `limit` problems; the last one mentions how many more there are."""
    problems = iter(problems)
    first = list(islice(problems, limit))
    hidden = sum(1 for _ in problems)
    yield from first[:-1] if hidden else first
    if hidden:
        yield replace(first[-1], what=f"{first[-1].what} There are {hidden} more like it.")


def first_line(error: BaseException) -> str:
    """Return the first line of an error message, or the class name if the message is empty."""
    lines: Sequence[str] = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
