"""Rows that hold two answers to one prompt, the chosen and the rejected one, in the layouts that TRL's files have.

| `prompt` | `chosen`, `rejected` | the prompt is |
|---|---|---|
| text | texts | `prompt` |
| left out | texts | what both begin with, up to the last blank before they differ |
| turns, or left out | turns | `prompt` and the turns with which both begin |
| text | turns | the same, with `prompt` as a user's turn where they do not hold it |

A pair becomes two rows of the shapes that everything else knows, `{"chosen": row, "rejected": row}`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import takewhile
from typing import Any

from schemas.formats import join_words
from schemas.problems import Problem, problem_of
from schemas.validate import check_value

Row = dict[str, Any]

SIDES = ("chosen", "rejected")


def is_pair(row: Row) -> bool:
    """Return whether a row of a file means to be a pair, though it may lack one answer."""
    has = [side in row for side in SIDES]
    return all(has) or (any(has) and not {"messages", "conversations", "completion", "output"} & row.keys())


def sides_of(row: Mapping[str, Any]) -> tuple[Row, ...]:
    """Return the rows that are learned from: both sides of a pair, or the row itself."""
    return (row["chosen"], row["rejected"]) if "chosen" in row else (dict(row),)


def pair_of(row: Row) -> Row:
    """Return a row that `problems_of_pair` finds nothing wrong with as two rows, one of each answer."""
    chosen, rejected = row["chosen"], row["rejected"]
    if isinstance(chosen, list):
        before = [*turns_of_prompt(row), *common_turns(row)]
        return {side: {"messages": [*before, row[side][-1]]} for side in SIDES}
    if "prompt" in row:
        return {side: {"prompt": row["prompt"], "completion": row[side]} for side in SIDES}
    begun = common_text(chosen, rejected)
    return {side: {"begun": begun, "completion": row[side][len(begun) :]} for side in SIDES}


def common_text(chosen: str, rejected: str) -> str:
    """Return what two texts begin with, up to the blank before the word in which they differ.

    "Sky is blue" and "Sky is black" give "Sky is". A token of the prompt is one in both texts then. The loss of DPO
    stays the same wherever a common beginning ends: what both answers share cancels out.
    """
    alike = "".join(one for one, _ in takewhile(lambda both: both[0] == both[1], zip(chosen, rejected, strict=False)))
    cut = re.fullmatch(r"(.*\S)?\s+\S*", alike, re.DOTALL)
    return cut[1] or "" if cut else ""


def common_turns(row: Row) -> list[Row]:
    """Return the turns with which both answers begin."""
    pairs = zip(row["chosen"], row["rejected"], strict=False)
    return [turn for turn, _ in takewhile(lambda turns: turns[0] == turns[1], pairs)]


def turns_of_prompt(row: Row) -> list[Row]:
    """Return the prompt as turns; a text that the answers hold as a turn of theirs stands there already."""
    prompt = row.get("prompt", [])
    if isinstance(prompt, list):
        return prompt
    held = any(turn.get("content") == prompt for turn in common_turns(row))
    return [] if held else [{"role": "user", "content": prompt}]


def problems_of_pair(row: Row) -> list[Problem]:
    """Return what is wrong with the columns prompt, chosen and rejected of a row; the problems name no file."""
    what = next(not_comparable(row), None)
    if what is not None:
        pointer, sentence = what
        return [problem_of("TP029", file="", pointer=pointer, what=sentence)]
    if row["chosen"] == row["rejected"]:
        same = "The answers chosen and rejected are the same."
        return [problem_of("TP028", file="", pointer="/rejected", what=same)]
    found = {
        replace(problem, pointer=pointer_in_pair(problem.pointer, side)): None
        for side, learned in pair_of(row).items()
        for problem in check_value("dataset_row", in_schema(learned), file="")
    }
    return list(found)


def in_schema(row: Row) -> Row:
    """Return a row as the schema knows it: what a text begins with is its prompt."""
    return {"prompt": row["begun"], "completion": row["completion"]} if "begun" in row else row


def not_comparable(row: Row) -> Iterator[tuple[str, str]]:
    """Yield why two answers of a row cannot be compared: where, and a sentence."""
    for side in SIDES:
        if side not in row:
            yield f"/{side}", f"The row has {join_words(row, last='and')}, and no {side} answer."
    for side in SIDES:
        if not isinstance(row.get(side), str | list):
            yield f"/{side}", f"{side} is neither a text nor a list of turns."
        elif not row[side]:
            yield f"/{side}", f"The answer {side} is empty."
    kinds = {type(row[side]) for side in SIDES}
    if len(kinds) > 1:
        yield "/rejected", "One answer is a text and the other a list of turns."
    prompt = row.get("prompt", "")
    if list in kinds:
        yield from not_comparable_turns(row)
    elif not isinstance(prompt, str):
        yield "/prompt", "The answers are texts, so the prompt must be one."
    elif "prompt" not in row and row["chosen"] != row["rejected"]:
        yield from not_comparable_texts(row)


def not_comparable_texts(row: Row) -> Iterator[tuple[str, str]]:
    """Yield why two texts without a prompt of their own do not make a pair."""
    begun = common_text(row["chosen"], row["rejected"])
    if not begun.strip():
        yield "/prompt", "The row has no prompt, and its answers begin with no words in common."
    for side in SIDES:
        if not row[side][len(begun) :].strip():
            yield f"/{side}", f"Nothing of {side} is left behind the words with which both answers begin."


def not_comparable_turns(row: Row) -> Iterator[tuple[str, str]]:
    """Yield why two lists of turns do not make a pair: each must add one turn of the assistant to the same turns."""
    lists = [*(row[side] for side in SIDES), row.get("prompt", [])]
    if not all(isinstance(turn, dict) for turns in lists if isinstance(turns, list) for turn in turns):
        yield "/chosen", "A turn is not an object with role and content."
    if not isinstance(row.get("prompt", ""), str | list):
        yield "/prompt", "The prompt is neither a text nor a list of turns."
    common = len(common_turns(row))
    if len(row["chosen"]) == common == len(row["rejected"]):
        return  # equal, which has a rule of its own
    for side in SIDES:
        added = len(row[side]) - common
        if added != 1:
            yield f"/{side}", f"{side} adds {added} turns to those that both answers share; a pair compares one."
        elif row[side][-1].get("role") != "assistant":
            yield f"/{side}/{common}/role", f"The last turn of {side} is by the {row[side][-1].get('role')}."


def pointer_in_pair(pointer: str | None, side: str) -> str:
    """Return where a problem of one of the two rows stands in the pair."""
    return "/prompt" if pointer == "/prompt" else f"/{side}"
