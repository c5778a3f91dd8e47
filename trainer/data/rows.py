"""Reading a dataset or an evaluation set: by built-in name, or from a file or folder.

A row comes out as the schema describes it, or as plain text; `render.py` turns it into what is learned. Problems in
rows are reported with their line numbers, all at once. Large files stay on disk: rows are decoded on access.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from schemas.catalog import DATASETS, EVAL_SETS, GYM
from schemas.formats import join_words
from schemas.problems import Problem, ProblemError, problem_of, truncate_problems
from trainer.config.names import no_dataset, no_eval_set
from trainer.data.files.columns import RowKind, as_talk, left_aside, other_columns, problems_of, shape_of
from trainer.data.files.pairs import sides_of
from trainer.data.files.table import JsonArray, JsonLines, RowTable, table_of
from trainer.data.reasoning_gym import gym_tasks

FOLDER = Path(__file__).parent
LARGEST_IN_MEMORY = 64 << 20
"""Bytes of a JSON file whose rows are held as objects, which take several times as much."""

MOST_EXPLAINED = 100
"""Rows with problems after which no more are looked for."""


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
    variables: Mapping[str, int] = field(default_factory=dict)
    """What rows give the chat template besides turns, such as tools: by name the number of the first such row."""
    generator: dict[str, Any] | None = None
    """What made the rows, where they stand in no file: package, version, task and its whole configuration."""


class ConvertedRows(RowTable):
    """Rows of a file in one of our shapes, each converted on access.

    Args:
        table: the rows as they stand in the file; each has a shape.
        kind: what they are.
        has_talks: take instructions as conversations, since some of them have turns before.
    """

    def __init__(self, table: RowTable, kind: RowKind, *, has_talks: bool) -> None:
        super().__init__(table.path)
        self._table, self._kind, self._has_talks = table, kind, has_talks

    def __len__(self) -> int:
        return len(self._table)

    def row(self, number: int) -> dict[str, Any]:
        """Return a row as our schema has it."""
        row = self._table[number]
        found = shape_of(row, self._kind)
        assert found is not None, "every row was looked at"
        taken = found[1].taken(row)
        if self._has_talks and "instruction" in found[1].columns and "messages" not in taken:
            return as_talk(taken["prompt"], taken["completion"])
        return taken


class Lines(Sequence[int]):
    """The line of each row of a table."""

    def __init__(self, table: RowTable) -> None:
        self._table = table

    def __len__(self) -> int:
        return len(self._table)

    def __getitem__(self, number: Any) -> Any:
        """Return the line of a row, counted from 1."""
        if isinstance(number, slice):
            return [self[one] for one in range(*number.indices(len(self)))]
        if number >= len(self):
            raise IndexError(number)
        return self._table.line_of(number)


@dataclass(kw_only=True)
class Looked:
    """What the rows of a file are, after each of them was looked at."""

    shapes: dict[tuple[RowKind, tuple[str, ...]], list[int]] = field(default_factory=dict)
    """Kind and deciding columns, with the numbers of the rows that have them."""
    problems: list[Problem] = field(default_factory=list)
    aside: dict[str, None] = field(default_factory=dict)
    """Columns of which nothing is learned."""
    has_talks: bool = False
    """Whether an instruction has turns before, so that it is a conversation."""
    variables: dict[str, int] = field(default_factory=dict)
    """What rows give the chat template besides turns: by name the number of the first such row."""


def look_through(table: RowTable, *kinds: RowKind) -> Looked:
    """Look at every row of a file, which is taken for the first of these kinds that it can be."""
    looked = Looked()
    for number in range(len(table)):
        try:
            look_at_row(table, number, kinds, looked)
        except ProblemError as error:
            looked.problems += error.problems
        if len(looked.problems) >= MOST_EXPLAINED:
            break
    return looked


def look_at_row(table: RowTable, number: int, kinds: Sequence[RowKind], looked: Looked) -> None:
    """Add what a row is to what is known of its file.

    Raises:
        ProblemError: what is wrong with the row, where it stands.
    """
    row = table[number]
    found = shape_of(row, *kinds)
    if found is None:
        default: RowKind = "rows" if "rows" in kinds else kinds[0]
        problems = [other_columns(row, default, [name for name in table.row(number) if name not in row])]
    else:
        problems = problems_of(row, *found)
    if problems or found is None:
        file, line = table.place_of(number)
        raise ProblemError([replace(each, file=file, line=line) for each in problems], exit_code=2)
    kind, shape = found
    looked.shapes.setdefault((kind, shape.columns), []).append(number)
    looked.aside |= dict.fromkeys(left_aside(row, kind, shape))
    if kind == "rows" and not looked.has_talks and "instruction" in row:
        looked.has_talks = "messages" in shape.taken(row)
    if {"tools", "chat_template_kwargs"} & row.keys():
        taken = sides_of(shape.taken(row))[0]
        for name in (*(["tools"] if "tools" in taken else []), *taken.get("chat_template_kwargs", {})):
            looked.variables.setdefault(name, number)


def read_dataset(name: str, kind: RowKind = "rows") -> RowFile:
    """Return the training rows of a built-in dataset, or of a file or folder.

    Args:
        name: built in, a task of reasoning-gym, or a path: JSONL, a JSON array, Parquet, Arrow, plain text, or a folder
            of them.
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
    return read_table(name if name in DATASETS else path.name, path, kind, "dataset")


def read_table(name: str, path: Path, kind: RowKind, what: str) -> RowFile:
    """Return the rows of a file after each of them was looked at; those of large files stay on disk.

    Raises:
        ProblemError: exit code 2; it cannot be read, is empty, or has rows of another shape.
    """
    table = table_of(path)
    if not len(table):
        raise ProblemError([empty(path, what)], exit_code=2)
    looked = look_through(table, kind)
    if looked.problems:
        raise ProblemError(list(truncate_problems(looked.problems)), exit_code=2)
    rows = ConvertedRows(table, kind, has_talks=looked.has_talks)
    is_small = isinstance(table, JsonLines | JsonArray) and path.stat().st_size <= LARGEST_IN_MEMORY
    return RowFile(
        name=name,
        path=path,
        rows=tuple(rows) if is_small else rows,
        lines=Lines(table),
        sha256=table.sha256,
        warnings=(*table.warnings, *aside(table, looked)),
        variables=looked.variables,
    )


def aside(table: RowTable, looked: Looked) -> list[Problem]:
    """Return the note of what is left aside: columns, and files of a folder."""
    named = [
        f"{noun}{'s' * (len(names) > 1)} {join_words(names, last='and')}"
        for noun, names in (("column", looked.aside), ("file", table.left_aside))
        if names
    ]
    what = f"Left aside: the {' and the '.join(named)}."
    return [problem_of("TP182", file=str(table.path), what=what, why=None)] if named else []


def read_eval_set(name: str) -> RowFile:
    """Return the items of a built-in evaluation set, or of a file as datasets have, each id once.

    Raises:
        ProblemError: exit code 2; the file is missing, empty, has items of another shape or an id twice.
    """
    if (absent := no_eval_set(name)) is not None:
        raise ProblemError([absent], exit_code=2)
    path = FOLDER / f"{name}.jsonl" if name in EVAL_SETS else Path(name)
    file = read_table(name if name in EVAL_SETS else path.name, path, "items", "evaluation set")
    problems = repeated_ids(file)
    if problems:
        raise ProblemError(problems, exit_code=2)
    return file


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
                "TP012", file=str(file.path), line=line, pointer="/id", what=what, why=None, expected=expected
            )
            problems.append(found)
    return problems


def empty(path: Path, what: str) -> Problem:
    """Return the problem of a file without a single row."""
    return problem_of(
        "TP011",
        file=str(path),
        what=f"The {what} has no rows.",
        why=None,
        expected="at least one line of JSON",
        next="Write one row per line; schemas/documents/v1 describes the shapes.",
    )
