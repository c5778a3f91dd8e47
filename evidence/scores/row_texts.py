"""The question of a training row, and what is learned of it: for finding overlap with items, one question each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

RowTexts = tuple[tuple[str, ...], str]
"""The question of a row, in each form that may be an item's, the longest last; and all that is learned."""


def row_texts(row: Mapping[str, Any]) -> RowTexts:
    """Return of a row of `dataset_row.schema.json`, or of a pair of answers, its question, and what it teaches.

    The question of a conversation is its last one, and all that stands before the answer. A plain text is its own
    question and answer.
    """
    if isinstance(row.get("chosen"), Mapping):
        return row_texts(row["chosen"])
    if "messages" in row:
        *before, last = [turn["content"] for turn in row["messages"]]
        return (before[-1] if before else "", "\n".join(before)), last
    [asked, *_] = [str(row[name]) for name in ("text", "begun", "prompt") if name in row]
    steps = [step["content"] for step in row.get("steps", ())]
    learned = [str(row[name]) for name in ("text", "completion", "chosen", "final_answer") if name in row]
    return (asked,), "\n".join((*steps, *learned))
