"""Reading a dataset or an evaluation set: by built-in name or as any JSONL file.

A row comes out as the schema describes it; `render.py` turns it into text. Problems in rows are reported with their
line numbers, all at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evidence.run.hashes import sha256_file
from schemas.names import DATASETS, EVAL_SETS, no_dataset, no_eval_set
from schemas.problems.problem import Problem, ProblemError
from schemas.validate import read_rows

FOLDER = Path(__file__).parent
GENERATED = "dev-reasoning-v2"
"""The dataset whose generator can make further rows."""


@dataclass(frozen=True, kw_only=True)
class RowFile:
    """The rows of one JSONL file."""

    name: str
    """The built-in name, or the file's name."""
    path: Path
    rows: tuple[dict[str, Any], ...]
    lines: tuple[int, ...]
    """On which line each row stands, counted from 1; blank lines are skipped."""
    sha256: str
    warnings: tuple[Problem, ...]
    """What was odd about the file and keeps nobody from using it."""


def read_dataset(name: str) -> RowFile:
    """Return the training rows of a built-in dataset or of a JSONL file.

    Raises:
        ProblemError: exit code 2; the file is missing, empty, has rows of another shape or conversations that do not
            end with the assistant's turn.
    """
    file = read_row_file(name, kind="dataset_row", builtin=DATASETS, what="dataset", absent=no_dataset(name))
    problems = other_last_turns(file)
    if problems:
        raise ProblemError(problems, exit_code=2)
    return file


def read_eval_set(name: str) -> RowFile:
    """Return the items of a built-in evaluation set or of a JSONL file, each id once.

    Raises:
        ProblemError: exit code 2; the file is missing, empty, has items of another shape or an id twice.
    """
    file = read_row_file(name, kind="eval_item", builtin=EVAL_SETS, what="evaluation set", absent=no_eval_set(name))
    problems = repeated_ids(file)
    if problems:
        raise ProblemError(problems, exit_code=2)
    return file


def read_row_file(name: str, *, kind: str, builtin: tuple[str, ...], what: str, absent: Problem | None) -> RowFile:
    """Return the rows of a built-in file or of a path, each valid against the schema `kind`, unless it is absent."""
    if absent is not None:
        raise ProblemError([absent], exit_code=2)
    path = FOLDER / f"{name}.jsonl" if name in builtin else Path(name)
    read = read_rows(path, kind)
    errors = [problem for problem in read.problems if problem.severity == "error"]
    if not errors and not read.values:
        errors = [empty(path, what)]
    if errors:
        raise ProblemError(errors, exit_code=2)
    return RowFile(
        name=name if name in builtin else path.name,
        path=path,
        rows=tuple(read.values),
        lines=tuple(map(read.line_of, range(len(read.values)))),
        sha256=sha256_file(path),
        warnings=read.problems,
    )


def other_last_turns(file: RowFile) -> list[Problem]:
    """Return a problem for each conversation whose last turn, which would be learned, is not the assistant's."""
    return [
        Problem(
            code="TP014",
            severity="error",
            file=str(file.path),
            line=line,
            pointer=f"/messages/{len(row['messages']) - 1}/role",
            what=f"The last turn is by the {row['messages'][-1]['role']}.",
            why="The last turn is what the model learns to write; it would learn to speak for another.",
            expected="assistant",
            next="End the conversation with the assistant's turn, or remove the row.",
        )
        for line, row in zip(file.lines, file.rows, strict=True)
        if "messages" in row and row["messages"][-1]["role"] != "assistant"
    ]


def repeated_ids(file: RowFile) -> list[Problem]:
    """Return a problem for each item whose id stands in an earlier item."""
    seen: dict[str, int] = {}
    problems = []
    for line, item in zip(file.lines, file.rows, strict=True):
        first = seen.setdefault(item["id"], line)
        if first != line:
            problems.append(
                Problem(
                    code="TP012",
                    severity="error",
                    file=str(file.path),
                    line=line,
                    pointer="/id",
                    what=f"The id {item['id']!r} is already used in line {first}.",
                    expected="an id that no other item has",
                    next="Give each item its own id; predictions are matched to items by it.",
                )
            )
    return problems


def empty(path: Path, what: str) -> Problem:
    """Return the problem of a file without a single row."""
    return Problem(
        code="TP011",
        severity="error",
        file=str(path),
        what=f"The {what} has no rows.",
        expected="at least one line of JSON",
        next="Write one row per line; schemas/documents/v1 describes the shapes.",
    )
