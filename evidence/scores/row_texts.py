"""What a training row asks, and what is learned of it: for finding overlap with items, which are one question each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

RowTexts = tuple[tuple[str, ...], str]
"""What a row asks, in each form that may be an item's, the longest last; and all that is learned."""


def row_texts(row: Mapping[str, Any]) -> RowTexts:
    """Return what a row of `dataset_row.schema.json`, or a pair of answers to one prompt, asks and teaches.

    A conversation asks its last question, and all that stands before the answer. A plain text asks and teaches itself.
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
