"""What there is to work with: the model, the rows as its tokenizer sees them, and the evaluation set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from evidence.rules.plausibility import describe_overlap
from evidence.scores.overlap import find_overlap, row_texts
from schemas.catalog import EVAL_SETS, MODELS
from schemas.formats import quantity
from schemas.problems import Problem, ProblemError, collect_problems, problem_of
from trainer.config.names import EVAL_SET_OF, model_path, no_eval_set
from trainer.config.tree import Config, DataConfig, EvaluationConfig, ModelConfig, ObjectiveConfig
from trainer.data.files.columns import shape_of
from trainer.data.files.table import table_of
from trainer.data.rows import read_eval_set
from trainer.first_config.shapes import RowsShape, read_shapes
from trainer.first_config.split import Split, items_of, question_and_answer, split_of
from trainer.model.model import Model, read_model
from trainer.objectives import objective_of
from trainer.objectives.data import Data, read_data


@dataclass(frozen=True, kw_only=True)
class EvalSetChoice:
    """The evaluation set of a first configuration."""

    name: str | None
    """A built-in set or a file that is there. None: the items are to be written, or nothing is evaluated."""
    because: str
    """Why it is this one, or why it is missing."""
    items: Sequence[dict[str, Any]] = ()
    split: Split | None = None
    """The questions held back from the rows. None: the rows stay as they are."""

    @property
    def is_written(self) -> bool:
        """Whether the items are to be written into a file of their own."""
        return bool(self.items) and self.name is None


@dataclass(frozen=True, kw_only=True)
class ModelAndData:
    """The model and its data, as far as they decide a configuration."""

    model: Model
    rows: RowsShape
    data: Data
    evaluated: EvalSetChoice
    longest_answer: int
    """Tokens of the longest completion, its end token included."""
    warnings: tuple[Problem, ...]

    @property
    def widths(self) -> np.ndarray:
        """Tokens that a sequence must have room for to hold each row."""
        return self.data.encoded.widths


def look_at(model: str, data: str, eval_set: str | None, problems: list[Problem]) -> ModelAndData | None:
    """Return what there is, None if any of it is of no use.

    Args:
        model: built in, a folder, or on the hub; of the last, weights are not fetched.
        data: rows, built in or in a file.
        eval_set: built in, a file of items, or a file of rows with answers. None: some rows are held back.
        problems: everything that is wrong is added to them.
    """
    plain = Config(model=ModelConfig(name=model))
    found = read_model(plain, problems, with_weights=model in MODELS or model_path(model) is not None)
    rows = read_shapes(data, problems)
    evaluated = evaluated_of(eval_set, rows, problems)
    if found is None:
        return None
    longest = found.source.spec.max_positions
    with collect_problems(problems):
        found.source.tokenizer()
    if rows is None or evaluated is None or problems:
        return None
    pairs = rows.kind == "pairs"
    draft = replace(
        plain,
        data=DataConfig(dataset=data, kind="text" if rows.kind == "text" else "rows", max_length=longest),
        objective=ObjectiveConfig(kind="dpo" if pairs else "supervised"),
        evaluation=EvaluationConfig(eval_set=evaluated.name, max_new_tokens=1),
    )
    read = read_data(draft, found, objective_of(draft), problems, devices=1)
    problems += read.refused if read else []
    if problems or read is None:
        return None
    warnings = [*read.warnings, *overlapping(evaluated, read, eval_set or data, problems)]
    if problems:
        return None
    return ModelAndData(
        model=found,
        rows=rows,
        data=read,
        evaluated=evaluated,
        longest_answer=0 if pairs else max((len(each.supervised) for each in read.encoded.encoded), default=0),
        warnings=tuple(warnings),
    )


def evaluated_of(eval_set: str | None, rows: RowsShape | None, problems: list[Problem]) -> EvalSetChoice | None:
    """Return the evaluation set: the one that is named, that of a built-in dataset, or questions of the rows."""
    if eval_set is not None:
        return named_set(eval_set, problems)
    if rows is None:
        return None
    if rows.is_built_in:
        name = EVAL_SET_OF[rows.name]
        return EvalSetChoice(
            name=name, because=f"the built-in set that belongs to {rows.name}", items=read_eval_set(name).rows
        )
    split, because = split_of(rows)
    return EvalSetChoice(name=None, because=because, items=() if split is None else split.items, split=split)


def named_set(name: str, problems: list[Problem]) -> EvalSetChoice | None:
    """Return the set that is named: as it is, or the items that its rows make."""
    if (absent := no_eval_set(name)) is not None:
        problems.append(replace(absent, next=absent.next.replace("--set evaluation.eval_set", "--eval")))
        return None
    if name in EVAL_SETS or not holds_rows(Path(name)):
        with collect_problems(problems):
            return EvalSetChoice(name=name, because="the set that you named", items=read_eval_set(name).rows)
        return None
    rows = read_shapes(name, problems)
    if rows is None:
        return None
    answered = [
        (rows.table.line_of(number), pair)
        for number, row in enumerate(rows.table)
        if (pair := question_and_answer(row)) is not None
    ]
    if len(answered) < len(rows.table):
        lacking = len(rows.table) - len(answered)
        what = f"{lacking:,} of {quantity(len(rows.table), 'row')} have no answer that an output can be held against."
        problems.append(problem_of("TP036", file=name, what=what))
        return None
    return EvalSetChoice(name=None, because=f"the rows of {name} as items", items=items_of(iter(answered)))


def holds_rows(path: Path) -> bool:
    """Return whether a file has training rows and no evaluation items."""
    try:
        return all("expected" not in row and shape_of(row, "rows") for row in table_of(path))
    except ProblemError:
        return False  # the reader of items states what is wrong with the file


def overlapping(evaluated: EvalSetChoice, data: Data, file: str, problems: list[Problem]) -> list[Problem]:
    """Return warnings about items that training rows hold too; that they hold all of them is a problem.

    Args:
        evaluated: the items, and the rows that are held back for them.
        data: the rows.
        file: what the items are from.
        problems: that training rows hold every item is added to them.
    """
    if not evaluated.items:
        return []
    split = evaluated.split
    texts = map(row_texts, data.rows)
    overlap = find_overlap(evaluated.items, (each for each in texts if split is None or not split.holds_back(each)))
    total = len(evaluated.items)
    if len(overlap.items_same) == total:
        what = f"Training rows ask each of its {quantity(total, 'item')} too."
        problems.append(problem_of("TP034", file=file, what=what))
        return []
    found = describe_overlap(overlap.document(), items=total)
    return [problem_of(code, file=file, what=what, severity="warning") for code, what in found]
