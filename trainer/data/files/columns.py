"""What the columns of a row mean: our shapes, those of ShareGPT and Alpaca files, pairs of answers, and plain text.

Other columns are left aside, as `id` and `source` usually are, unless their name says that they change what is learned.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from schemas.catalog import schema
from schemas.formats import join_words
from schemas.problems import Problem, problem_of
from schemas.validate import check_value
from trainer.data.files.pairs import SIDES, is_pair, pair_of, problems_of_pair

Row = dict[str, Any]

RowKind = Literal["rows", "text", "pairs", "items"]
"""What a file is read as: `data.kind`, pairs of answers where the objective compares them, or items to be evaluated."""


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

_FLAGS = ("train", "train_on_turn", "trainable", "loss", "mask", "loss_mask", "completion_mask", "assistant_masks")
_WEIGHTS = ("weight", "weights", "sample_weight", "loss_weight")
_MEDIA = ("image", "images", "audio", "audios", "video", "videos")
_CALLS = ("tool_calls", "tool_call_id", "function_call", "reasoning_content", "thinking")
MEANT: Mapping[str, str] = {
    **dict.fromkeys(_FLAGS, "Remove it: data.supervise says which turns are learned, the last one or all."),
    **dict.fromkeys(_WEIGHTS, "Remove it: every row counts alike. Repeat rows that should count more."),
    **dict.fromkeys(_MEDIA, "Models here read text alone. Remove it, or the rows that make no sense without it."),
    **dict.fromkeys(_CALLS, "Write it into the content, as the model is to write it, or remove the row."),
    **dict.fromkeys(("question", "query", "context", "documents"), "Write it into the prompt, or remove it."),
    **dict.fromkeys(("system_prompt", "system_message"), "Rename it to system."),
    **dict.fromkeys(("input_ids", "labels"), "Remove it: tokens are made of the text."),
    **dict.fromkeys(SIDES, f"{OTHER_KIND['chosen']} To learn the other columns, remove chosen and rejected."),
    "functions": 'Write it as tools: [{"type": "function", "function": {"name": …}}].',
    "label": "Keep the rows whose label is true and remove it, or write chosen and rejected answers for DPO.",
}
"""What to do about columns, and keys of a turn, that change what is learned and that nothing here uses."""
_OF_PROMPT = ("question", "query", "context")
"""Those of them that say nothing where turns hold the prompt; what stands beside plain text is not in this table."""
_TALK: Mapping[str, tuple[type[Any], str]] = {
    "system": (str, "a text"),
    "history": (list, "a list of turns, or of questions with their answers"),
    "tools": (list, "a list of objects, or such a list as JSON"),
    "chat_template_kwargs": (dict, "an object"),
}
"""Columns that belong into a conversation, and what they hold."""
_TURNS = ("messages", "conversations", "history", "prompt", *SIDES)
"""Columns that may hold turns."""
_TURN_KEYS = frozenset({"role", "content", "from", "value"})
_OUR_OWN = frozenset({"meta", "trace_version"})
"""Columns of our own files that are not learned."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """How a row is recognised and converted."""

    columns: tuple[str, ...]
    taken: Callable[[Row], Row]
    """From a row of a file to one of ours."""
    also: frozenset[str] = frozenset()
    """Other columns that are taken where they are there."""


def of_own(columns: Iterable[str]) -> Callable[[Row], Row]:
    """Return what takes these columns as they are."""
    wanted = frozenset(columns)
    return lambda row: {name: value for name, value in row.items() if name in wanted}


def of_turns(row: Row) -> Row:
    """Return a conversation as messages, behind its columns `system` and `history`, with its tools."""
    turns, talk = turns_in(row["messages"] if "messages" in row else row["conversations"]), talk_in(row)
    if not isinstance(turns, list):
        return {"messages": turns}
    turns = [*(talk.pop("history", None) or []), *turns]
    system = talk.pop("system", None)
    if system and (not turns or turns[0].get("role") != "system"):
        turns.insert(0, {"role": "system", "content": system})
    return {"messages": turns} | talk


def turns_in(turns: Any) -> Any:
    """Return turns with `from` and `value`, or `role` and `content`, under the latter names.

    A speaker that no one knows stays as it is named, and is refused, as is what is no list of turns.
    """
    if not isinstance(turns, list) or not all(isinstance(turn, dict) for turn in turns):
        return turns
    found = [(turn.get("role", turn.get("from")), turn.get("content", turn.get("value"))) for turn in turns]
    pairs = [{"role": SPEAKERS.get(str(speaker), speaker), "content": said} for speaker, said in found]
    return [{key: value for key, value in turn.items() if value is not None} for turn in pairs]


def talk_in(row: Row) -> Row:
    """Return the columns of a row that belong into a conversation, unless they are empty; None where one is no such."""
    found: Row = {}
    for name, (form, _) in _TALK.items():
        value = row.get(name)
        if form is not str and isinstance(value, str):
            with suppress(ValueError):
                value = json.loads(value)
        if name == "history" and isinstance(value, list):
            pairs = [as_talk(*one)["messages"] if isinstance(one, list) and len(one) == 2 else [one] for one in value]
            value = turns_in([turn for pair in pairs for turn in pair])
        if value:
            is_form = isinstance(value, form) and (form is not list or all(isinstance(one, dict) for one in value))
            found[name] = value if is_form else None
    return found


def of_instruction(row: Row) -> Row:
    """Return an Alpaca row: the instruction, a blank line and the input, where there is one, request the output.

    With a system prompt, earlier turns or tools it is a conversation.
    """
    given = row.get("input")
    prompt = f"{row['instruction']}\n\n{given}" if given else row["instruction"]
    if talk_in(row):
        return of_turns({name: row[name] for name in _TALK if name in row} | as_talk(prompt, row["output"]))
    return {"prompt": prompt, "completion": row["output"]}


def as_talk(prompt: Any, completion: Any) -> Row:
    """Return a prompt and what is learned as turns."""
    return {"messages": [{"role": "user", "content": prompt}, {"role": "assistant", "content": completion}]}


def pair_columns(row: Row) -> Row:
    """Return prompt, chosen and rejected of a pair, with turns as we name them.

    Without a prompt of its own it is the instruction, or the conversation before the answers. `messages` that repeat
    the chosen answer, as in ultrafeedback_binarized, are none.
    """
    found = {side: turns_in([row[side]] if isinstance(row[side], dict) else row[side]) for side in SIDES if side in row}
    if "prompt" in row:
        return {"prompt": turns_in(row["prompt"])} | found
    if "instruction" in row:
        return {"prompt": of_instruction({"output": "", **row, **dict.fromkeys(_TALK)})["prompt"]} | found
    turns = turns_in(row.get("conversations", row.get("messages")))
    if not isinstance(turns, list) or not turns or turns in found.values() or not isinstance(turns[-1], dict):
        return found
    answers = {
        side: [{"role": "assistant", "content": one}] if isinstance(one, str) else one for side, one in found.items()
    }
    return {"prompt": turns[:-1] if turns[-1].get("role") == "assistant" else turns} | answers


def of_pair(row: Row) -> Row:
    """Return a pair as two rows of our shapes, one of each answer."""
    talk = {name: row[name] for name in _TALK if name in row}
    sides = pair_of(pair_columns(row))
    return {side: of_turns(talk | one) if "messages" in one else one for side, one in sides.items()}


_TRACE = ("prompt", "steps", "final_answer")
_ITEM = tuple(schema("eval_item")["properties"])
SHAPES: Mapping[RowKind, tuple[Shape, ...]] = {
    "pairs": (Shape(columns=SIDES, taken=of_pair, also=frozenset({"prompt", "instruction", "input"})),),
    "rows": (
        Shape(columns=("messages",), taken=of_turns),
        Shape(columns=("prompt", "completion"), taken=of_own(("prompt", "completion"))),
        Shape(columns=_TRACE, taken=of_own(_TRACE)),
        Shape(columns=("prompt", "task"), taken=of_own((*_TRACE, "task")), also=frozenset({"final_answer"})),
        Shape(columns=("conversations",), taken=of_turns),
        Shape(columns=("instruction", "output"), taken=of_instruction, also=frozenset({"input"})),
    ),
    "text": (Shape(columns=("text",), taken=of_own(("text",))),),
    "items": (Shape(columns=(), taken=of_own(_ITEM), also=frozenset(_ITEM)),),
}
"""Of those whose columns a row has, the first is taken."""


def shape_of(row: Row, *kinds: RowKind) -> tuple[RowKind, Shape] | None:
    """Return the first of these kinds that a row is of, and its shape; None if it is of none."""
    for kind in kinds:
        for shape in SHAPES[kind]:
            if is_pair(row) if kind == "pairs" else all(name in row for name in shape.columns):
                return kind, shape
    return None


def problems_of(row: Row, kind: RowKind, shape: Shape) -> list[Problem]:
    """Return what is wrong with a row; the problems name no file."""
    if kind == "items":
        return check_value("eval_item", shape.taken(row), file="")
    if problems := list(refused_columns(row, kind, shape)):
        return problems
    if kind == "pairs":
        return problems_of_pair(pair_columns(row))
    taken = shape.taken(row)
    if kind == "text":
        is_text = isinstance(taken["text"], str)
        return [] if is_text else [problem_of("TP019", file="", pointer="/text", what="The text is not a string.")]
    if not (problems := check_value("dataset_row", taken, file="")) and "messages" in taken:
        role, place = taken["messages"][-1]["role"], f"/messages/{len(taken['messages']) - 1}/role"
        what = f"The last turn is by the {role}."
        if role != "assistant":
            return [problem_of("TP014", file="", pointer=place, what=what, expected="assistant")]
    return problems


def refused_columns(row: Row, kind: RowKind, shape: Shape) -> Iterator[Problem]:
    """Yield a problem for each column, or key of a turn, that changes what is learned and cannot be used."""
    taken = pair_columns(row) if kind == "pairs" else shape.taken(row)
    turns = next((one for name, one in taken.items() if isinstance(one, list) and name != "steps"), None)
    for name, value in row.items():
        if name not in MEANT or name in (*shape.columns, *shape.also) or not changes(name, value, usual=1):
            continue
        is_class = name == "label" and (kind != "rows" or not isinstance(value, int | float))
        is_spare = name in _OF_PROMPT and (turns is not None or (name != "context" and "prompt" in row))
        is_metadata = kind == "text" and name not in (*_FLAGS, *_WEIGHTS, *_MEDIA, "labels")
        if not (is_class or is_spare or is_metadata):
            yield meant(name, f"The row has the column {name}, which is not used.", MEANT[name])
    for name, value in (talk_in(row) if kind != "text" else {}).items():
        if turns is None:
            what = f"The row has the column {name}, for which a plain prompt has no place."
            yield meant(name, what, "Write the row as a conversation, with messages, or remove the column.")
        elif value is None:
            yield meant(name, f"{name} is not {_TALK[name][1]}.", "Correct it, or remove the column.")
        elif name == "system" and turns and (first := turns[0]).get("role") == name and first.get("content") != value:
            what = "The row has two system prompts, one as a column and one as a turn."
            yield meant(name, what, "Remove one of them.")
    for name, index, turn in turns_of(row, shape):
        yield from refused_keys(turn, f"{name}/{index}", is_last=name != "history" and index == len(row[name]) - 1)


def refused_keys(turn: Row, place: str, *, is_last: bool) -> Iterator[Problem]:
    """Yield a problem for each key of a turn that changes what is learned and cannot be used."""
    of_assistant = 1 if is_last else None
    usual = of_assistant if turns_in([turn])[0].get("role") == "assistant" else 0
    for key, value in turn.items():
        if key in MEANT and changes(key, value, usual=usual):
            yield meant(f"{place}/{key}", f"The turn has the key {key}, which is not used.", MEANT[key])


def meant(pointer: str, what: str, way: str) -> Problem:
    """Return the problem of a column or key that cannot be used."""
    return problem_of("TP181", file="", pointer=f"/{pointer}", what=what, next=way)


def changes(name: str, value: Any, *, usual: int | None) -> bool:
    """Return whether a value changes what is learned: it is not empty, nor a flag or weight that is so anyway."""
    return value != usual if name in (*_FLAGS, *_WEIGHTS) else value not in (None, "", [], {})


def turns_of(row: Row, shape: Shape) -> Iterator[tuple[str, int, Row]]:
    """Yield the turns of a row: their column, their place and the turn as it is written."""
    for name in [name for name in _TURNS if name in (*shape.columns, *shape.also, "history") and name in row]:
        for index, turn in enumerate(row[name] if isinstance(row[name], list) else ()):
            if isinstance(turn, dict):
                yield name, index, turn


def left_aside(row: Row, kind: RowKind, shape: Shape) -> Iterator[str]:
    """Yield the columns of a row, and the keys of its turns, of which nothing is learned."""
    used = {*shape.columns, *shape.also, *_OUR_OWN, *_TALK}
    if kind == "pairs" and not {"prompt", "instruction"} & row.keys() and "prompt" in pair_columns(row):
        used |= {"messages", "conversations"}
    yield from (name for name in row if name not in used)
    yield from (f"{name}[].{key}" for name, _, turn in turns_of(row, shape) for key in turn if key not in _TURN_KEYS)


def other_columns(row: Row, kind: RowKind, empty: Sequence[str]) -> Problem:
    """Return the problem of a row whose columns make no shape, some of them perhaps for being null or NaN."""
    found = join_words(row, last="and") if row else "none"
    other = next((OTHER_KIND[name] for name in OTHER_KIND if kind == "rows" and name in row), None)
    missing = f" Empty: {join_words(empty, last='and')} (null or NaN)." if empty else ""
    return problem_of(
        "TP018",
        file="",
        what=f"The row has the columns {found}, which make no shape that {MEANT_AS[kind]} knows.{missing}",
        expected=EXPECTED[kind],
        next=other,
    )
