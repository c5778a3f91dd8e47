"""Rows held back for an evaluation: drawn by the hash of their questions, so that a file is always split alike."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from evidence.scores.overlap import RowTexts, row_texts, split_words
from evidence.scores.reading import ANSWER_OPEN, extract_answer, last_boxed
from trainer.data.files.columns import shape_of
from trainer.data.files.table import RowTable
from trainer.first_config.shapes import RowsShape

LONGEST_ANSWER = 60
"""Characters of a completion that is taken to be an answer; a longer one is a text, which has many right forms."""

MARKED = re.compile(r"####\s*(\S.*?)\s*$")
"""How GSM8K and what was made after it mark the answer at the end of a solution."""


def question_and_answer(row: dict[str, Any]) -> tuple[str, str] | None:
    """Return the question of a row of a file and the answer that counts as right, None if it holds no such pair.

    A conversation counts if it is one question, with or without a system's turn before it.
    """
    found = shape_of(row, "rows")
    if found is None:
        return None
    taken = found[1].taken(row)
    if "messages" in taken:
        return of_turns(taken["messages"])
    if "final_answer" in taken:
        return both(taken["prompt"], taken["final_answer"])
    return both(taken["prompt"], answer_in(taken["completion"]))


def of_turns(turns: Any) -> tuple[str, str] | None:
    """Return question and answer of a conversation."""
    roles = [turn.get("role") for turn in turns] if isinstance(turns, list) else []
    if roles not in (["user", "assistant"], ["system", "user", "assistant"]):
        return None
    return both(turns[-2].get("content"), answer_in(turns[-1].get("content")))


def both(question: Any, answer: Any) -> tuple[str, str] | None:
    """Return question and answer where both are text that is not blank."""
    if not isinstance(question, str) or not isinstance(answer, str) or not (question.strip() and answer.strip()):
        return None
    return question, answer.strip()


def answer_in(text: Any) -> str | None:
    r"""Return the answer that a completion states: tagged, boxed, marked as GSM8K does it, or the whole of a short one.

    >>> [answer_in(text) for text in ("<answer>4</answer>", "2 and 2 are 4.\n#### 4", " Paris ", "a" * 61, "one\ntwo")]
    ['4', '4', 'Paris', None, None]
    """
    if not isinstance(text, str):
        return None
    if ANSWER_OPEN in text:
        return extract_answer(text)
    if "\\boxed" in text:
        return last_boxed(text)
    if marked := MARKED.search(text):
        return marked[1]
    plain = text.strip()
    return plain if len(plain) <= LONGEST_ANSWER and "\n" not in plain else None


def question_key(question: str) -> str:
    """Return what two questions share that `check` takes for the same: their words, spelled in one way."""
    return " ".join(split_words(question))


def hash_question(question: str) -> str:
    """Return the place of a question in an order that depends on its words alone, not on where it stands in a file."""
    return hashlib.sha256(question_key(question).encode()).hexdigest()


def items_of(answered: Iterator[tuple[int, tuple[str, str]]]) -> list[dict[str, str]]:
    """Return evaluation items of numbered questions; the id of each states where its row stands in the file."""
    return [{"id": f"line-{line}", "prompt": question, "expected": answer} for line, (question, answer) in answered]


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
            found = shape_of(row, "rows")
            assert found is not None, "every row was looked at"
            if not self.holds_back(row_texts(found[1].taken(row))):
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
