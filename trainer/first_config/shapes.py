"""What a file of rows holds, inferred from the columns of all its rows, before any of them is taken for something."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from schemas.names import DATASETS, GYM, NO_ROWS, no_dataset
from schemas.problems.problem import Gathering, Problem, ProblemError
from schemas.problems.rule import Rule, first_few, problem_of
from schemas.problems.words import listed, quantity
from trainer.data.files.columns import RowKind, other_columns, shape_of
from trainer.data.files.pairs import is_pair
from trainer.data.files.table import RowTable, table_of
from trainer.data.rows import FOLDER, MOST_EXPLAINED, empty

MIXED_ROWS = Rule(
    "TP033",
    "Rows of several kinds",
    "A run asks its evaluation as its rows ask, and rows of several kinds ask in several ways.",
    "Write each kind into a file of its own, or convert the rows to one kind.",
)

KINDS: tuple[RowKind, ...] = ("rows", "text")
"""As which rows are looked at, pairs apart; the first that knows the columns is taken."""


@dataclass(frozen=True, kw_only=True)
class RowsShape:
    """A file of rows of one kind."""

    name: str
    """As it was given: built in, or a path."""
    kind: RowKind
    columns: tuple[str, ...]
    """The columns that decide what a row is: `("prompt", "completion")`."""
    table: RowTable
    """The rows as they stand in the file."""

    @property
    def is_built_in(self) -> bool:
        """Whether it came with the program."""
        return self.name in DATASETS


def read_shapes(name: str, problems: list[Problem]) -> RowsShape | None:
    """Return what a file of rows holds, None if that is unknown; every row is looked at.

    Args:
        name: built in, or a path.
        problems: what is wrong is added to them: no such file, no rows, unknown columns, several kinds.
    """
    if (absent := no_dataset(name)) is not None:
        problems.append(replace(absent, next=absent.next.replace("--dataset", "the second argument as")))
        return None
    if name.startswith(GYM):
        what = f"{name} stands in no file: reasoning-gym generates it, and rewards are learned from."
        way = "Write the configuration by hand: objective.kind grpo with the reward reasoning_gym."
        problems.append(problem_of(NO_ROWS, file=name, what=what, why=None, next=way))
        return None
    table: RowTable | None = None
    path = FOLDER / f"{name}.jsonl" if name in DATASETS else Path(name)
    with Gathering(problems):
        table = table_of(path)
    if table is None:
        return None
    if not len(table):
        problems.append(empty(path, "dataset"))
        return None
    found, wrong = shapes_of(table)
    problems += first_few(wrong)
    if len(found) > 1:
        problems.append(several_kinds(path, found))
    if wrong or len(found) != 1:
        return None
    [(kind, columns)] = found
    return RowsShape(name=name, kind=kind, columns=columns, table=table)


Shapes = dict[tuple[RowKind, tuple[str, ...]], list[int]]
"""Kind and deciding columns, with the lines of the rows that have them."""


def shapes_of(table: RowTable) -> tuple[Shapes, list[Problem]]:
    """Return the kinds of rows in a file, and the problems of rows that are of none."""
    found: Shapes = {}
    wrong: list[Problem] = []
    for number in range(len(table)):
        try:
            row = table[number]
        except ProblemError as error:
            wrong += error.problems
        else:
            if (shape := kind_of(row)) is None:
                wrong.append(other_columns(row, "rows", table.path, table.line_of(number)))
            else:
                found.setdefault(shape, []).append(table.line_of(number))
        if len(wrong) >= MOST_EXPLAINED:
            break
    return found, wrong


def kind_of(row: dict[str, Any]) -> tuple[RowKind, tuple[str, ...]] | None:
    """Return what a row is read as and the columns that decide it, None if no kind has its columns.

    `{"prompt": "2 + 2?", "completion": "4", "id": 7}` gives `("rows", ("prompt", "completion"))`.
    """
    if is_pair(row):
        return "pairs", ("chosen", "rejected")
    for kind in KINDS:
        if (shape := shape_of(row, kind)) is not None:
            return kind, shape.columns
    return None


def several_kinds(path: Path, found: Shapes) -> Problem:
    """Return the problem of a file with rows of several kinds."""
    each = [
        f"{quantity(len(lines), 'row')} with {listed(columns, last='and')} (first in line {lines[0]})"
        for (_, columns), lines in found.items()
    ]
    return problem_of(MIXED_ROWS, file=str(path), what=f"The file holds {listed(each, last='and')}.")
