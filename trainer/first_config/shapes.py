"""What a file of rows holds, inferred from the columns of all its rows, before any of them is taken for something."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from schemas.catalog import DATASETS, GYM
from schemas.formats import join_words, quantity
from schemas.problems import Problem, collect_problems, problem_of, truncate_problems
from trainer.config.names import no_dataset
from trainer.data.files.columns import RowKind
from trainer.data.files.table import RowTable, table_of
from trainer.data.rows import FOLDER, Looked, empty, look_through

KINDS: tuple[RowKind, ...] = ("pairs", "rows", "text")
"""As which rows are looked at; the first that knows the columns is taken."""


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
        problems.append(problem_of("TP010", file=name, what=what, why=None, next=way))
        return None
    table: RowTable | None = None
    path = FOLDER / f"{name}.jsonl" if name in DATASETS else Path(name)
    with collect_problems(problems):
        table = table_of(path)
    if table is None:
        return None
    if not len(table):
        problems.append(empty(path, "dataset"))
        return None
    looked = look_through(table, *KINDS)
    problems += truncate_problems(looked.problems)
    if len(looked.shapes) > 1:
        problems.append(several_kinds(table, looked))
    if looked.problems or len(looked.shapes) != 1:
        return None
    [(kind, columns)] = looked.shapes
    return RowsShape(name=name, kind=kind, columns=columns, table=table)


def several_kinds(table: RowTable, looked: Looked) -> Problem:
    """Return the problem of a file with rows of several kinds."""
    each = [
        f"{quantity(len(rows), 'row')} with {join_words(columns, last='and')} (first in line {table.line_of(rows[0])})"
        for (_, columns), rows in looked.shapes.items()
    ]
    return problem_of("TP033", file=str(table.path), what=f"The file holds {join_words(each, last='and')}.")
