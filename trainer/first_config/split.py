"""Rows held back for an evaluation: drawn by the hash of their questions, so that a file is always split alike."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from evidence.scores.row_texts import RowTexts, row_texts
from trainer.data.files.columns import shape_of
from trainer.data.files.table import RowTable
from trainer.first_config.answers import hash_question, items_of, question_and_answer, question_key
from trainer.first_config.shapes import RowsShape

MOST_ITEMS = 100
"""Items of a split; with 100 a score of one half is known to about 10 points."""
SHARE = 10
"""One of so many rows is held back."""
FEWEST_ITEMS = 10
FEWEST_ROWS = 30
"""Rows with answers, each another question, below which none is held back."""


@dataclass(frozen=True, kw_only=True)
class Split:
    """Which questions of a file are held back for the evaluation."""

    table: RowTable
    items: list[dict[str, str]]
    questions: frozenset[str]
    """Keys of the questions that are held back; every row with one of them is."""

    def training_lines(self) -> Iterator[str]:
        """Yield the rows that are learned from, each as a line of JSON."""
        for row in self.table:
            shape = shape_of(row, "rows")
            assert shape is not None, "every row was looked at"
            if not self.holds_back(row_texts(shape.taken(row))):
                yield line_of(row)

    def holds_back(self, texts: RowTexts) -> bool:
        """Return whether a row is, at its end or in all, a question that is held back."""
        return any(question_key(asked) in self.questions for asked in texts[0])

    def item_lines(self) -> Iterator[str]:
        """Yield the items, each as a line of JSON."""
        return map(line_of, self.items)


def split_of(rows: RowsShape) -> tuple[Split | None, str]:
    """Return the split of a file and why it is this one, or None and why it is missing.

    Of 200 rows with as many questions, 20 are held back: those with the smallest SHA-256 of the question.
    """
    if rows.is_built_in:
        return None, "a built-in dataset has an evaluation set of its own"
    if rows.kind != "rows":
        return None, f"rows with {' and '.join(rows.columns)} have no answer that could be right or wrong"
    found: dict[str, tuple[int, tuple[str, str]]] = {}
    answered = 0
    for number, row in enumerate(rows.table):
        if (pair := question_and_answer(row)) is not None:
            answered += 1
            found.setdefault(question_key(pair[0]), (rows.table.line_of(number), pair))
    total = len(rows.table)
    if 2 * answered < total:
        return None, (
            f"{answered or 'none'} of the {total:,} rows have an answer to compare with (tags, ####, or a short line)"
        )
    if len(found) < FEWEST_ROWS:
        return None, f"the rows ask {len(found):,} different questions, and fewer than {FEWEST_ROWS} are not split"
    count = min(MOST_ITEMS, max(FEWEST_ITEMS, len(found) // SHARE))
    drawn = sorted(found, key=hash_question)[:count]
    in_order = sorted((found[key] for key in drawn), key=lambda each: each[0])
    split = Split(table=rows.table, items=items_of(iter(in_order)), questions=frozenset(drawn))
    return split, f"drawn from {len(found):,} questions by the hash of each"


def line_of(row: dict[str, Any]) -> str:
    """Return a row as a line of JSONL."""
    return json.dumps(row, ensure_ascii=False) + "\n"
