"""Reading a dataset or an evaluation set: by built-in name, or from a file or folder.

A row comes out as the schema describes it, or as plain text; `render.py` turns it into what is learned. Problems in
rows are reported with their line numbers, all at once. Large files stay on disk: rows are decoded on access.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evidence.run.hashes import sha256_file
from schemas.names import DATASETS, EVAL_SETS, GYM, no_dataset, no_eval_set
from schemas.problems.problem import Problem, ProblemError
from schemas.problems.rule import Rule, first_few, problem_of
from schemas.validate import check_value, read_rows
from trainer.data.files.columns import RowKind, is_own, other_columns, shape_of
from trainer.data.files.pairs import is_pair, problems_of_pair
from trainer.data.files.table import RowTable, table_of
from trainer.data.reasoning_gym import gym_tasks

FOLDER = Path(__file__).parent
LARGEST_IN_MEMORY = 64 << 20
"""Bytes of a JSONL file whose rows are held as objects, which take several times as much."""

MOST_EXPLAINED = 100
"""Rows with problems after which no more are looked for."""

EMPTY = Rule("TP011", "Empty dataset", "The file has no rows.", "Write one JSON object per line.")
ID_TWICE = Rule(
    "TP012",
    "Id stands twice",
    "Two evaluation items share an id.",
    "Give each item its own id; predictions are matched to items by it.",
)
NOT_THE_ASSISTANT = Rule(
    "TP014",
    "Last turn is not the assistant's",
    "The last turn is what the model learns to write; it would learn to speak for another.",
    "End the conversation with the assistant's turn, or remove the row.",
)

NOT_TEXT = Rule(
    "TP019", "Text that is not one", "A row of plain text holds another value.", "Write text, or remove it."
)


@dataclass(frozen=True, kw_only=True)
class RowFile:
    """The rows of one file."""

    name: str
    """The built-in name, or the file's name."""
    path: Path
    rows: Sequence[dict[str, Any]]
    lines: Sequence[int]
    """On which line each row stands, counted from 1; blank lines are skipped."""
    sha256: str
    warnings: tuple[Problem, ...]
    """What was odd about the file and keeps no one from using it."""
    generator: dict[str, Any] | None = None
    """What made the rows, where they stand in no file: package, version, task and its whole configuration."""


class ConvertedRows(RowTable):
    """Rows of a file in one of our shapes, each converted on access.

    Args:
        table: the rows as they stand in the file; each has a shape.
        kind: what they are.
    """

    def __init__(self, table: RowTable, kind: RowKind) -> None:
        super().__init__(table.path)
        self._table = table
        self._kind = kind

    def __len__(self) -> int:
        return len(self._table)

    def row(self, number: int) -> dict[str, Any]:
        """Return a row as our schema has it."""
        row = self._table[number]
        shape = shape_of(row, self._kind)
        if shape is None:
            raise ProblemError([other_columns(row, self._kind, self.path, self.line_of(number))], exit_code=2)
        return shape.taken(row)

    def line_of(self, number: int) -> int:
        """Return where a row stands in the file."""
        return self._table.line_of(number)


class Lines(Sequence[int]):
    """The line of each row of a table."""

    def __init__(self, table: RowTable) -> None:
        self._table = table

    def __len__(self) -> int:
        return len(self._table)

    def __getitem__(self, number: Any) -> Any:
        """Return the line of a row, counted from 1."""
        if isinstance(number, slice):
            return [self._table.line_of(one) for one in range(*number.indices(len(self)))]
        if number >= len(self):
            raise IndexError(number)
        return self._table.line_of(number)


def read_dataset(name: str, kind: RowKind = "rows") -> RowFile:
    """Return the training rows of a built-in dataset, or of a file or folder.

    Args:
        name: built in, a task of reasoning-gym, or a path: JSONL, Parquet, a folder of the `datasets` library, plain
            text.
        kind: rows; text, of which only the column `text` is taken; or pairs of answers.

    Raises:
        ProblemError: exit code 2; the file is missing, empty, has rows of another shape or conversations that do not
            end with the assistant's turn.
    """
    if (absent := no_dataset(name)) is not None:
        raise ProblemError([absent], exit_code=2)
    if name.startswith(GYM):
        gym = gym_tasks(name)
        return RowFile(name=name, path=Path(name), lines=(), warnings=(), **vars(gym))
    path = FOLDER / f"{name}.jsonl" if name in DATASETS else Path(name)
    if kind == "rows" and has_own_rows(path):
        file = read_row_file(name, path, kind="dataset_row", what="dataset")
    else:
        file = read_table(path, kind)
    problems = list(first_few(other_last_turns(file))) if kind == "rows" else []
    if problems:
        raise ProblemError(problems, exit_code=2)
    return file


def has_own_rows(path: Path) -> bool:
    """Return whether a file is JSONL that may be held as objects, and not of a foreign shape by its first row."""
    if path.is_dir() or path.suffix.lower() in (".parquet", ".txt") or path.stat().st_size > LARGEST_IN_MEMORY:
        return False
    try:
        with path.open("rb") as stream:
            first = next((line for line in stream if line.strip()), b"{}")
        row = json.loads(first)
    except ValueError:
        return True  # the reader of our own rows states what is wrong with the line
    return not isinstance(row, dict) or not row or is_own(row)


def read_table(path: Path, kind: RowKind) -> RowFile:
    """Return the rows of a file that stays on disk, after each of them was looked at.

    Raises:
        ProblemError: exit code 2; it cannot be read, is empty, or has rows of another shape.
    """
    table = table_of(path)
    if not len(table):
        raise ProblemError([empty(path, "dataset")], exit_code=2)
    problems: list[Problem] = []
    for number in range(len(table)):
        problems += problems_of_row(table, number, kind)
        if len(problems) >= MOST_EXPLAINED:
            break
    if problems:
        raise ProblemError(list(first_few(problems)), exit_code=2)
    taken = ConvertedRows(table, kind)
    return RowFile(name=path.name, path=path, rows=taken, lines=Lines(taken), sha256=table.sha256, warnings=())


def problems_of_row(table: RowTable, number: int, kind: RowKind) -> list[Problem]:
    """Return what is wrong with a row of a file."""
    row, line = table[number], table.line_of(number)
    if kind == "pairs" and is_pair(row):
        own: dict[str, Any] = {name: row[name] for name in ("prompt", "chosen", "rejected") if name in row}
        return problems_of_pair(own, file=str(table.path), line=line)
    shape = shape_of(row, kind)
    if shape is None:
        return [other_columns(row, kind, table.path, line)]
    taken = shape.taken(row)
    if kind == "rows":
        return check_value("dataset_row", taken, file=str(table.path), lines=lambda _: line)
    if isinstance(taken["text"], str):
        return []
    return [problem_of(NOT_TEXT, file=str(table.path), line=line, pointer="/text", what="The text is not a string.")]


def read_eval_set(name: str) -> RowFile:
    """Return the items of a built-in evaluation set or of a JSONL file, each id once.

    Raises:
        ProblemError: exit code 2; the file is missing, empty, has items of another shape or an id twice.
    """
    if (absent := no_eval_set(name)) is not None:
        raise ProblemError([absent], exit_code=2)
    path = FOLDER / f"{name}.jsonl" if name in EVAL_SETS else Path(name)
    file = read_row_file(name, path, kind="eval_item", what="evaluation set")
    problems = repeated_ids(file)
    if problems:
        raise ProblemError(problems, exit_code=2)
    return file


def read_row_file(name: str, path: Path, *, kind: str, what: str) -> RowFile:
    """Return the rows of a JSONL file, each valid against the schema `kind`."""
    read = read_rows(path, kind)
    errors = [problem for problem in read.problems if problem.severity == "error"]
    if not errors and not read.values:
        errors = [empty(path, what)]
    if errors:
        raise ProblemError(errors, exit_code=2)
    return RowFile(
        name=name if name in (*DATASETS, *EVAL_SETS) else path.name,
        path=path,
        rows=tuple(read.values),
        lines=tuple(map(read.line_of, range(len(read.values)))),
        sha256=sha256_file(path),
        warnings=read.problems,
    )


def other_last_turns(file: RowFile) -> Iterator[Problem]:
    """Yield a problem for each conversation whose last turn, which would be learned, is not the assistant's."""
    for line, row in zip(file.lines, file.rows, strict=True):
        if "messages" in row and row["messages"][-1]["role"] != "assistant":
            yield problem_of(
                NOT_THE_ASSISTANT,
                file=str(file.path),
                line=line,
                pointer=f"/messages/{len(row['messages']) - 1}/role",
                what=f"The last turn is by the {row['messages'][-1]['role']}.",
                expected="assistant",
            )


def repeated_ids(file: RowFile) -> list[Problem]:
    """Return a problem for each item whose id stands in an earlier item."""
    seen: dict[str, int] = {}
    problems = []
    for line, item in zip(file.lines, file.rows, strict=True):
        first = seen.setdefault(item["id"], line)
        if first != line:
            what = f"The id {item['id']!r} is already used in line {first}."
            expected = "an id that no other item has"
            found = problem_of(
                ID_TWICE, file=str(file.path), line=line, pointer="/id", what=what, why=None, expected=expected
            )
            problems.append(found)
    return problems


def empty(path: Path, what: str) -> Problem:
    """Return the problem of a file without a single row."""
    return problem_of(
        EMPTY,
        file=str(path),
        what=f"The {what} has no rows.",
        why=None,
        expected="at least one line of JSON",
        next="Write one row per line; schemas/documents/v1 describes the shapes.",
    )
