"""What was found: a `Problem`, and `ProblemError`, the one exception that carries problems to a user.

A check makes a problem of its `Rule` (`schemas.problems.rule`); `schemas.problems.render` writes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Literal

Severity = Literal["error", "warning", "note"]

Lines = Callable[[str], int | None]
"""Takes a JSON Pointer and returns the line of that value, counted from 1, or None if it is unknown."""

RANK: dict[Severity, int] = {"error": 0, "warning": 1, "note": 2}


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One thing that is wrong, where it is, and what to do about it.

    Attributes:
        code: `TP` and three digits; the first digit is the family: 0 usage and configuration, 1 shape, 2 integrity,
            3 contradiction, 4 plausibility, 5 completeness, 6 hygiene, 7 device, memory and training failure, 8 bundle,
            9 learning from rewards.
        severity: error, warning or note.
        file: the file or folder as the user named it; empty if it concerns none.
        what: what happened, as a sentence.
        next: what to do now, as a sentence.
        why: the reason or the rule behind it, as a sentence.
        expected: what would have been right, as a noun phrase without a full stop.
        line: line in the file, counted from 1.
        pointer: JSON Pointer (RFC 6901) to the value inside the document; the empty string is the whole document.
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

    @property
    def key_path(self) -> str:
        """The pointer as people write it for this file; empty if there is none, or if it is the whole document."""
        return key_path(self.file, self.pointer or "")


class ProblemError(Exception):
    """The only exception that users meet; the command line and the pages catch it and show its problems."""

    def __init__(self, problems: Sequence[Problem], *, exit_code: int = 1) -> None:
        self.problems: tuple[Problem, ...] = worst_first(problems)
        self.exit_code = exit_code
        super().__init__("; ".join(problem.what for problem in self.problems))


class Gathering:
    """Adds what is refused inside to `problems` and goes on behind it, so that several checks are reported together."""

    def __init__(self, problems: list[Problem]) -> None:
        self._problems = problems

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if isinstance(error, ProblemError):
            self._problems.extend(error.problems)
        return isinstance(error, ProblemError)


def worst_first(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Return the problems with errors before warnings before notes; otherwise their order is kept."""
    return tuple(sorted(problems, key=lambda problem: RANK[problem.severity]))


def pointer_to(path: Iterable[str | int]) -> str:
    """Return the JSON Pointer of a path: `["a/b", 0]` becomes `/a~1b/0`."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)


def key_path(file: str, pointer: str) -> str:
    """Return a JSON Pointer as people write it: `optimizer.betas[0]` in YAML and for `--set`, unchanged elsewhere."""
    if not file.endswith((".yaml", ".yml")) and not file.startswith("--"):
        return pointer
    parts = [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]
    return "".join(f"[{part}]" if part.isdecimal() else f".{part}" for part in parts).removeprefix(".")


def unknown_lines(_pointer: str) -> int | None:
    """Return None: the `Lines` of something without lines."""
    return None
