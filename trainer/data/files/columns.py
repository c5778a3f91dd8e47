"""What the columns of a row mean: our shapes, those of ShareGPT and Alpaca files, and plain text.

Columns that a shape does not name are left aside, as `id` and `source` usually are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from schemas.problems.problem import Problem
from schemas.problems.rule import Rule, problem_of
from schemas.problems.words import listed
from trainer.data.files.pairs import is_pair, pair_of

Row = dict[str, Any]

RowKind = Literal["rows", "text", "pairs"]
"""What a file is read as: `data.kind`, or pairs of answers where the objective compares them."""

OTHER_COLUMNS = Rule(
    "TP018",
    "Columns of no known shape",
    "Which column is given and which is learned is told by their names.",
    "Rename the columns, or convert the file.",
)

OWN = (("messages",), ("prompt", "completion"), ("prompt", "steps", "final_answer"), ("prompt", "task"))
"""Columns of the shapes of `dataset_row.schema.json`."""

KNOWN = frozenset({"meta", "trace_version"}.union(*OWN))
"""All columns of that schema."""

SPEAKERS: Mapping[str, str] = {
    **dict.fromkeys(("human", "user"), "user"),
    **dict.fromkeys(("gpt", "assistant", "model", "chatgpt", "bot"), "assistant"),
    "system": "system",
}
"""Roles by the names that ShareGPT files give them."""

EXPECTED = {
    "rows": "messages; prompt and completion; prompt, steps and final_answer; prompt and task; conversations "
    "(ShareGPT); or instruction and output (Alpaca)",
    "text": "text, or a .txt file",
    "pairs": "chosen and rejected, with prompt or with answers that begin alike",
}


OTHER_KIND = {
    "text": "To learn plain text: --set data.kind=text.",
    "chosen": "To learn which answer is preferred: --set objective.kind=dpo.",
}
"""What to do where a column of another kind of file is there."""

MEANT_AS = {"rows": "data.kind rows", "text": "data.kind text", "pairs": "an objective of pairs"}


@dataclass(frozen=True, kw_only=True)
class Shape:
    """How a row is recognised and converted."""

    columns: tuple[str, ...]
    taken: Callable[[Row], Row]
    """From a row of a file to one of ours."""


def of_own(columns: Iterable[str]) -> Callable[[Row], Row]:
    """Return what takes these columns as they are, and the answer of a task, where there is one."""
    wanted = {*columns, "final_answer"} if "task" in columns else {*columns}
    return lambda row: {name: value for name, value in row.items() if name in wanted}


def of_conversations(row: Row) -> Row:
    """Return a ShareGPT row as messages; a speaker that no one knows stays as it is named, and is refused."""
    turns = row["conversations"]
    if not isinstance(turns, list) or not all(isinstance(turn, dict) for turn in turns):
        return {"messages": turns}
    return {"messages": [turn_of(turn) for turn in turns]}


def turn_of(turn: Row) -> Row:
    """Return a turn with `from` and `value`, or `role` and `content`, under the latter names."""
    speaker = turn.get("from", turn.get("role"))
    return {"role": SPEAKERS.get(str(speaker), speaker), "content": turn.get("value", turn.get("content"))}


def of_instruction(row: Row) -> Row:
    """Return an Alpaca row: the instruction, a blank line and the input, where there is one, request the output."""
    given = row.get("input")
    return {"prompt": f"{row['instruction']}\n\n{given}" if given else row["instruction"], "completion": row["output"]}


SHAPES: Mapping[str, tuple[Shape, ...]] = {
    "rows": (
        *(Shape(columns=columns, taken=of_own(columns)) for columns in OWN),
        Shape(columns=("conversations",), taken=of_conversations),
        Shape(columns=("instruction", "output"), taken=of_instruction),
    ),
    "text": (Shape(columns=("text",), taken=of_own(("text",))),),
    "pairs": (Shape(columns=("chosen", "rejected"), taken=pair_of),),
}
"""By `RowKind`; of those whose columns a row has, the first is taken."""


def is_own(row: Row) -> bool:
    """Return whether a row has no column but ours, so that the schema can state what is wrong with it."""
    return not is_pair(row) and any(name in row for columns in OWN for name in columns) and KNOWN.issuperset(row)


def shape_of(row: Row, kind: str) -> Shape | None:
    """Return the shape of a row, or None if it is unknown."""
    return next((shape for shape in SHAPES[kind] if all(name in row for name in shape.columns)), None)


def other_columns(row: Row, kind: str, path: Path, line: int) -> Problem:
    """Return the problem of a row whose columns make no shape."""
    found = listed(row, last="and") if row else "none"
    other = next((OTHER_KIND[name] for name in OTHER_KIND if kind == "rows" and name in row), None)
    return problem_of(
        OTHER_COLUMNS,
        file=str(path),
        line=line,
        what=f"The row has the columns {found}, which make no shape that {MEANT_AS[kind]} knows.",
        expected=EXPECTED[kind],
        next=other,
    )
