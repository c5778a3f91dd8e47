"""Questions with one right answer, taken from training rows: what an evaluation set is made of."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import Any

from evidence.scores.scoring import ANSWER_OPEN, extract_answer
from evidence.scores.words import words_of
from trainer.data.files.columns import shape_of

LONGEST_ANSWER = 60
"""Characters of a completion that is taken to be an answer; a longer one is a text, which has many right forms."""

MARKED = re.compile(r"####\s*(\S.*?)\s*$")
"""How GSM8K and what was made after it mark the answer at the end of a solution."""


def question_and_answer(row: dict[str, Any]) -> tuple[str, str] | None:
    """Return the question of a row of a file and the answer that counts as right, None if it holds no such pair.

    A conversation counts if it is one question, with or without a system's turn before it.
    """
    shape = shape_of(row, "rows")
    if shape is None:
        return None
    taken = shape.taken(row)
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
    r"""Return the answer that a completion states: tagged, marked as GSM8K does it, or the whole of a short one.

    >>> [answer_in(text) for text in ("<answer>4</answer>", "2 and 2 are 4.\n#### 4", " Paris ", "a" * 61, "one\ntwo")]
    ['4', '4', 'Paris', None, None]
    """
    if not isinstance(text, str):
        return None
    if ANSWER_OPEN in text:
        return extract_answer(text)
    if marked := MARKED.search(text):
        return marked[1]
    plain = text.strip()
    return plain if len(plain) <= LONGEST_ANSWER and "\n" not in plain else None


def question_key(question: str) -> str:
    """Return what two questions share that `check` takes for the same: their words, spelled in one way."""
    return " ".join(words_of(question))


def hash_question(question: str) -> str:
    """Return the place of a question in an order that depends on its words alone, not on where it stands in a file."""
    return hashlib.sha256(question_key(question).encode()).hexdigest()


def items_of(answered: Iterator[tuple[int, tuple[str, str]]]) -> list[dict[str, str]]:
    """Return evaluation items of numbered questions; the id of each states where its row stands in the file."""
    return [{"id": f"line-{line}", "prompt": question, "expected": answer} for line, (question, answer) in answered]
