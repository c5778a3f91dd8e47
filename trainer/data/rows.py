"""Datasets and evaluation sets: what the columns of a row mean, which rows are refused, and rows in one form.

`docs/guides/data.md` lists the columns. A converted row has `messages` (with `tools` and `chat_template_kwargs`),
`prompt` and `completion`, the columns of a trace or a task, `text`, or `chosen` and `rejected`, which are rows.
"""

from __future__ import annotations

import difflib
import importlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from itertools import chain, takewhile
from os.path import commonprefix
from pathlib import Path
from typing import Any, Literal, NamedTuple
from urllib.parse import parse_qsl

from evidence.hashes import sha256_lines
from evidence.rewards import GYM_PACKAGE, REASONING_GYM
from schemas.catalog import DATASETS, EVAL_SETS, GYM, schema
from schemas.formats import format_value, join_words
from schemas.problems import Problem, ProblemError, collect_problems, problem_of, truncate_problems
from schemas.validate import check_value
from trainer.config.names import missing_dataset, missing_eval_set
from trainer.data.builtin import FOLDER
from trainer.data.files import LazySequence, Row, RowTable, StoredSequence, drop_missing, open_table

RowKind = Literal["rows", "text", "pairs", "items"]
"""How a file is read: `data.kind`, pairs of answers, or evaluation items."""

SIDES = ("chosen", "rejected")
GYM_DISTRIBUTION = "reasoning-gym"
MAX_EXPLAINED_ROWS = 100  # rows with problems after which the rest of a file is not checked

_SPEAKERS = {"human": "user", **dict.fromkeys(("gpt", "model", "chatgpt", "bot"), "assistant")}
"""Roles by their ShareGPT names."""

_ROWS = "messages; prompt and completion; prompt, steps and final_answer; prompt and task; conversations (ShareGPT)"
_EXPECTED = {
    "rows": ("data.kind rows", f"{_ROWS}; or instruction and output (Alpaca)"),
    "text": ("data.kind text", "text, or a .txt file"),
    "pairs": ("an objective of pairs", "chosen and rejected, with prompt or with answers that begin alike"),
}
"""How a file is read, and the columns that it needs."""
_OTHER_KIND = {
    "text": "To learn plain text: --set data.kind=text.",
    "chosen": "To learn which answer is preferred: --set objective.kind=dpo.",
}
"""Advice by a column that belongs to another kind of file."""
_FLAGS = ("train", "train_on_turn", "trainable", "loss", "mask", "loss_mask", "completion_mask", "assistant_masks")
_WEIGHTS = ("weight", "weights", "sample_weight", "loss_weight")
_MEDIA = ("image", "images", "audio", "audios", "video", "videos")
_CALLS = ("tool_calls", "tool_call_id", "function_call", "reasoning_content", "thinking")
_QUESTIONS = ("question", "query", "context")
_REFUSED: Mapping[str, str] = {
    **dict.fromkeys(_FLAGS, "Remove it: data.supervise says which turns are learned, the last one or all."),
    **dict.fromkeys(_WEIGHTS, "Remove it: every row counts alike. Repeat rows that should count more."),
    **dict.fromkeys(_MEDIA, "Only text is read. Remove it, or the rows that make no sense without it."),
    **dict.fromkeys(_CALLS, "Write it into the content, as the model is to write it, or remove the row."),
    **dict.fromkeys((*_QUESTIONS, "documents"), "Write it into the prompt, or remove it."),
    **dict.fromkeys(("system_prompt", "system_message"), "Rename it to system."),
    **dict.fromkeys(("input_ids", "labels"), "Remove it: the text is tokenized."),
    **dict.fromkeys(SIDES, f"{_OTHER_KIND['chosen']} To learn the other columns, remove chosen and rejected."),
    "functions": 'Write it as tools: [{"type": "function", "function": {"name": …}}].',
    "label": "Keep the rows whose label is true and remove it, or write chosen and rejected answers for DPO.",
}
"""Columns and keys of a turn that would change what is learned but are not used, with advice."""

_CONTEXT: Mapping[str, tuple[type[Any], str]] = {
    "system": (str, "a text"),
    "history": (list, "a list of turns, or of questions with their answers"),
    "tools": (list, "a list of objects, or such a list as JSON"),
    "chat_template_kwargs": (dict, "an object"),
}
"""Columns that belong to a conversation."""
_TURN_COLUMNS = ("messages", "conversations", "history", "prompt", *SIDES)
_TURN_KEYS = frozenset({"role", "content", "from", "value"})
_OWN_METADATA = frozenset({"meta", "trace_version"})


class Shape(NamedTuple):
    """Columns that identify a form of row, its conversion, and further columns that are used."""

    columns: tuple[str, ...]
    convert: Callable[[Row], Row]
    optional: frozenset[str] = frozenset()


def select(*columns: str) -> Callable[[Row], Row]:
    """Return a conversion that keeps these columns."""
    return lambda row: {name: value for name, value in row.items() if name in columns}


def convert_conversation(row: Row) -> Row:
    """Convert turns, preceded by the columns `system` and `history`, with tools."""
    turns, context = normalize_turns(row["messages"] if "messages" in row else row["conversations"]), read_context(row)
    if not isinstance(turns, list):
        return {"messages": turns}
    turns = [*(context.pop("history", None) or []), *turns]
    system = context.pop("system", None)
    if system and not (turns and isinstance(turns[0], dict) and turns[0].get("role") == "system"):
        turns.insert(0, {"role": "system", "content": system})
    return {"messages": turns} | context


def normalize_turns(turns: Any) -> Any:
    """Return turns with the keys `role` and `content`; anything but a list of objects is returned unchanged."""
    if not isinstance(turns, list) or not all(isinstance(turn, dict) for turn in turns):
        return turns
    found = [(turn.get("role", turn.get("from")), turn.get("content", turn.get("value"))) for turn in turns]
    pairs = [{"role": _SPEAKERS.get(str(speaker), speaker), "content": content} for speaker, content in found]
    return [{key: value for key, value in turn.items() if value is not None} for turn in pairs]


def read_context(row: Row) -> Row:
    """Return the non-empty columns that belong to a conversation, with None for values of the wrong type."""
    found: Row = {}
    for name, (form, _) in _CONTEXT.items():
        value = row.get(name)
        if form is not str and isinstance(value, str):
            with suppress(ValueError):
                value = json.loads(value)
        if name == "history" and isinstance(value, list):
            pairs = [to_messages(*one) if isinstance(one, list) and len(one) == 2 else [one] for one in value]
            value = normalize_turns([*chain.from_iterable(pairs)])
        if value:
            is_valid = isinstance(value, form) and (form is not list or all(isinstance(one, dict) for one in value))
            found[name] = value if is_valid else None
    return found


def convert_instruction(row: Row) -> Row:
    """Convert an Alpaca row; with a system prompt, earlier turns or tools it becomes a conversation."""
    extra = row.get("input")
    prompt = f"{row['instruction']}\n\n{extra}" if extra else row["instruction"]
    if read_context(row):
        columns = {name: row[name] for name in _CONTEXT if name in row}
        return convert_conversation({**columns, "messages": to_messages(prompt, row["output"])})
    return {"prompt": prompt, "completion": row["output"]}


def to_messages(prompt: Any, completion: Any) -> list[Row]:
    """Return a prompt and its answer as two turns."""
    return [{"role": "user", "content": prompt}, {"role": "assistant", "content": completion}]


# Pairs of answers, in the layouts of TRL; `docs/guides/preference.md` lists them.


def is_pair(row: Row) -> bool:
    """Return whether a row is meant as a pair, even if one answer is missing."""
    has = [side in row for side in SIDES]
    return all(has) or (any(has) and not {"messages", "conversations", "completion", "output"} & row.keys())


def split_sides(row: Mapping[str, Any]) -> tuple[Row, ...]:
    """Return both sides of a converted pair, or the row itself."""
    return (row["chosen"], row["rejected"]) if "chosen" in row else (dict(row),)


def pair_columns(row: Row) -> Row:
    """Return prompt, chosen and rejected of a pair, with normalized turns.

    Without a prompt column it is the instruction, or the conversation before the answers. `messages` that repeat the
    chosen answer, as in ultrafeedback_binarized, are ignored.
    """
    stated = {side: row[side] for side in SIDES if side in row}
    sides = {side: normalize_turns([one] if isinstance(one, dict) else one) for side, one in stated.items()}
    if "prompt" in row:
        return {"prompt": normalize_turns(row["prompt"])} | sides
    if "instruction" in row:
        return {"prompt": convert_instruction({"output": "", **row, **dict.fromkeys(_CONTEXT)})["prompt"]} | sides
    turns = normalize_turns(row.get("conversations", row.get("messages")))
    if not isinstance(turns, list) or not turns or turns in sides.values() or not isinstance(turns[-1], dict):
        return sides
    answers = {side: to_messages("", one)[1:] if isinstance(one, str) else one for side, one in sides.items()}
    return {"prompt": turns[:-1] if turns[-1].get("role") == "assistant" else turns} | answers


def convert_pair(row: Row) -> Row:
    """Convert a pair into two rows, one for each answer."""
    context = {name: row[name] for name in _CONTEXT if name in row}
    sides = split_pair(pair_columns(row))
    return {side: convert_conversation(context | one) if "messages" in one else one for side, one in sides.items()}


def split_pair(row: Row) -> Row:
    """Return two rows of a valid pair; the common beginning of texts without a prompt is called `begun`.

    Turns begin with the prompt, unless it is a text that they contain, and with the turns that both answers share.
    """
    prompt = row.get("prompt")
    if isinstance(row["chosen"], list):
        turns = common_turns(row)
        if isinstance(prompt, list):
            turns = [*prompt, *turns]
        elif prompt is not None and not any(turn.get("content") == prompt for turn in turns):
            turns = [{"role": "user", "content": prompt}, *turns]
        return {side: {"messages": [*turns, row[side][-1]]} for side in SIDES}
    if prompt is not None:
        return {side: {"prompt": prompt, "completion": row[side]} for side in SIDES}
    begun = common_text(row["chosen"], row["rejected"])
    return {side: {"begun": begun, "completion": row[side][len(begun) :]} for side in SIDES}


def common_text(chosen: str, rejected: str) -> str:
    """Return the common beginning of two texts, up to the blank before the word in which they differ.

    "Sky is blue" and "Sky is black" give "Sky is", so both prompts have the same tokens. The loss of DPO does not
    depend on where a common beginning ends, since the log-probabilities of shared tokens cancel.
    """
    cut = re.fullmatch(r"(.*\S)?\s+\S*", commonprefix([chosen, rejected]), re.DOTALL)  # noqa: RUF071 - of texts
    return cut[1] or "" if cut else ""


def common_turns(row: Row) -> list[Row]:
    """Return the turns with which both answers begin."""
    pairs = zip(row["chosen"], row["rejected"], strict=False)
    return [turn for turn, _ in takewhile(lambda turns: turns[0] == turns[1], pairs)]


def check_pair(row: Row) -> list[Problem]:
    """Return the problems of the columns prompt, chosen and rejected; they name no file."""
    if (found := find_pair_mistake(row)) is not None:
        return [problem_of("TP029", file="", pointer=found[0], what=found[1])]
    if row["chosen"] == row["rejected"]:
        same = "The answers chosen and rejected are the same."
        return [problem_of("TP028", file="", pointer="/rejected", what=same)]
    problems: dict[Problem, None] = {}
    for side, one in split_pair(row).items():
        for problem in [] if "begun" in one else check_value("dataset_row", one, file=""):
            problems[replace(problem, pointer="/prompt" if problem.pointer == "/prompt" else f"/{side}")] = None
    return list(problems)


def find_pair_mistake(row: Row) -> tuple[str, str] | None:
    """Return why two answers cannot be compared, after a JSON pointer, or None."""
    for side in SIDES:
        value = row.get(side)
        if not isinstance(value, str | list) or not value:
            is_other = side in row and value not in (None, "", [])
            what = "is neither a text nor a list of turns" if is_other else "is empty" if side in row else "is missing"
            return f"/{side}", f"The {side} answer {what}."
    chosen, rejected = row["chosen"], row["rejected"]
    if type(chosen) is not type(rejected):
        return "/rejected", "One answer is a text and the other a list of turns."
    if isinstance(chosen, list):
        return find_turn_mistake(row)
    if not isinstance(row.get("prompt", ""), str):
        return "/prompt", "The answers are texts, so the prompt must be one."
    begun = common_text(chosen, rejected)
    has_prompt = "prompt" in row or all(text.strip() for text in (begun, chosen[len(begun) :], rejected[len(begun) :]))
    if not has_prompt and chosen != rejected:
        return "/prompt", "The row lacks a prompt, and its answers do not begin with the same words and then differ."
    return None


def find_turn_mistake(row: Row) -> tuple[str, str] | None:
    """Return why two lists of turns are not a pair: each must add one assistant turn to the same turns."""
    prompt, common = row.get("prompt", []), len(common_turns(row))
    if not isinstance(prompt, str | list):
        return "/prompt", "The prompt is neither a text nor a list of turns."
    turns = [*row["chosen"], *row["rejected"], *(prompt if isinstance(prompt, list) else ())]
    if not all(isinstance(turn, dict) for turn in turns):
        return "/chosen", "A turn is not an object with role and content."
    for side in SIDES if row["chosen"] != row["rejected"] else ():
        if [turn.get("role") for turn in row[side][common:]] != ["assistant"]:
            what = f"{side} must add one turn by the assistant to the {common} turns that both answers share."
            return f"/{side}", what
    return None


_TRACE, _ALPACA = ("prompt", "steps", "final_answer"), ("instruction", "output")
_ITEM = tuple(schema("eval_item")["properties"])
SHAPES: Mapping[RowKind, tuple[Shape, ...]] = {
    "pairs": (Shape(SIDES, convert_pair, frozenset({"prompt", "instruction", "input"})),),
    "rows": (
        Shape(("messages",), convert_conversation),
        Shape(("prompt", "completion"), select("prompt", "completion")),
        Shape(_TRACE, select(*_TRACE)),
        Shape(("prompt", "task"), select(*_TRACE, "task"), frozenset({"final_answer"})),
        Shape(("conversations",), convert_conversation),
        Shape(_ALPACA, convert_instruction, frozenset({"input"})),
    ),
    "text": (Shape(("text",), select("text")),),
    "items": (Shape((), select(*_ITEM), frozenset(_ITEM)),),
}
"""The first shape whose columns a row has is used."""


def find_shape(row: Row, *kinds: RowKind) -> tuple[RowKind, Shape] | None:
    """Return the first kind that fits a row, and its shape, or None."""
    for kind in kinds:
        for shape in SHAPES[kind]:
            if is_pair(row) if kind == "pairs" else all(name in row for name in shape.columns):
                return kind, shape
    return None


def check_row(row: Row, kind: RowKind, shape: Shape) -> list[Problem]:
    """Return the problems of a row; they name no file."""
    if kind == "items":
        return check_value("eval_item", shape.convert(row), file="")
    if unused := [*find_unused_columns(row, kind, shape), *find_unused_keys(row, shape)]:
        return [problem_of("TP181", file="", pointer=f"/{each}", what=what, next=fix) for each, what, fix in unused]
    if kind == "pairs":
        return check_pair(pair_columns(row))
    converted = shape.convert(row)
    if kind == "text":
        is_text = isinstance(converted["text"], str)
        return [] if is_text else [problem_of("TP019", file="", pointer="/text", what="The text is not a string.")]
    problems = check_value("dataset_row", converted, file="")
    if not problems and (role := converted.get("messages", [{"role": "assistant"}])[-1]["role"]) != "assistant":
        what, pointer = f"The last turn is by the {role}.", f"/messages/{len(converted['messages']) - 1}/role"
        problems.append(problem_of("TP014", file="", pointer=pointer, what=what, expected="assistant"))
    return problems


def find_unused_columns(row: Row, kind: RowKind, shape: Shape) -> Iterator[tuple[str, str, str]]:
    """Yield the columns that would change what is learned and are not used: pointer, what is wrong, what to do."""
    converted = pair_columns(row) if kind == "pairs" else shape.convert(row)
    turns = next((one for name, one in converted.items() if isinstance(one, list) and name != "steps"), None)
    for name, value in row.items():
        if name not in _REFUSED or name in (*shape.columns, *shape.optional) or not is_effective(name, value, usual=1):
            continue
        is_class = name == "label" and (kind != "rows" or not isinstance(value, int | float))
        is_spare = name in _QUESTIONS and (turns is not None or (name != "context" and "prompt" in row))
        is_metadata = kind == "text" and name not in (*_FLAGS, *_WEIGHTS, *_MEDIA, "labels")
        if not (is_class or is_spare or is_metadata):
            yield name, f"The row has the column {name}, which is not used.", _REFUSED[name]
    first: Row = next((turn for turn in turns or () if isinstance(turn, dict)), {})
    for name, value in (read_context(row) if kind != "text" else {}).items():
        if turns is None:
            fix = "Write the row as a conversation, with messages, or remove the column."
            yield name, f"The row has the column {name}, which a plain prompt cannot use.", fix
        elif value is None:
            yield name, f"{name} is not {_CONTEXT[name][1]}.", "Correct it, or remove the column."
        elif name == "system" and first.get("role") == name and first.get("content") != value:
            yield name, "The row has two system prompts, one as a column and one as a turn.", "Keep only one."


def find_unused_keys(row: Row, shape: Shape) -> Iterator[tuple[str, str, str]]:
    """Yield the keys of turns that would change what is learned and are not used, as `find_unused_columns`."""
    for name, index, turn in iterate_turns(row, shape):
        is_last = name != "history" and index == len(row[name]) - 1
        usual = (1 if is_last else None) if normalize_turns([turn])[0].get("role") == "assistant" else 0
        for key, value in turn.items():
            if key in _REFUSED and is_effective(key, value, usual=usual):
                yield f"{name}/{index}/{key}", f"The turn has the key {key}, which is not used.", _REFUSED[key]


def is_effective(name: str, value: Any, *, usual: int | None) -> bool:
    """Return whether a value would change what is learned: neither empty nor a flag or weight with the usual value."""
    return value != usual if name in (*_FLAGS, *_WEIGHTS) else value not in (None, "", [], {})


def iterate_turns(row: Row, shape: Shape) -> Iterator[tuple[str, int, Row]]:
    """Yield column, index and original turn of the turns of a row."""
    for name in _TURN_COLUMNS:
        if name in (*shape.columns, *shape.optional, "history") and isinstance(row.get(name), list):
            yield from ((name, index, turn) for index, turn in enumerate(row[name]) if isinstance(turn, dict))


def find_ignored(row: Row, kind: RowKind, shape: Shape) -> Iterator[str]:
    """Yield the columns of a row, and the keys of its turns, that are not learned from."""
    used = {*shape.columns, *shape.optional, *_OWN_METADATA, *_CONTEXT}
    if kind == "pairs" and not {"prompt", "instruction"} & row.keys() and "prompt" in pair_columns(row):
        used |= {"messages", "conversations"}
    yield from (name for name in row if name not in used)
    for name, _, turn in iterate_turns(row, shape):
        yield from (f"{name}[].{key}" for key in turn if key not in _TURN_KEYS)


# Reading a file.


@dataclass(frozen=True, kw_only=True)
class RowFile:
    """The rows of one file."""

    name: str  # built-in name, or name of the file
    path: Path
    rows: Sequence[Row]
    lines: Sequence[int]  # line of each row, counted from 1
    sha256: str
    warnings: tuple[Problem, ...]
    variables: Mapping[str, int] = field(default_factory=dict)  # of the chat template: see `RowScan`
    generator: dict[str, Any] | None = None  # package, version, task and configuration of generated rows


@dataclass(kw_only=True)
class RowScan:
    """Rows of a file, checked and converted."""

    rows: Sequence[Row] = ()
    shapes: dict[tuple[RowKind, tuple[str, ...]], list[int]] = field(default_factory=dict)  # rows by kind and columns
    problems: list[Problem] = field(default_factory=list)
    ignored: dict[str, None] = field(default_factory=dict)  # columns that are not learned from
    variables: dict[str, int] = field(default_factory=dict)  # that rows give to the chat template, with the first row

    def convert(self, table: RowTable, number: int, raw: Row, kinds: Sequence[RowKind]) -> Row:
        """Convert a row, and note its columns, or raise a ProblemError."""
        row = drop_missing(raw, keep=table.keep)
        if (found := find_shape(row, *kinds)) is None:
            problems = [unknown_columns(row, kinds, [name for name in raw if name not in row])]
        else:
            problems = check_row(row, *found)
        if problems or found is None:
            file, line = table.locate(number)
            raise ProblemError([replace(each, file=file, line=line) for each in problems], exit_code=2)
        kind, shape = found
        self.shapes.setdefault((kind, shape.columns), []).append(number)
        self.ignored |= dict.fromkeys(find_ignored(row, kind, shape))
        converted = shape.convert(row)
        first = split_sides(converted)[0]
        for name in (*(["tools"] if "tools" in first else []), *first.get("chat_template_kwargs", {})):
            self.variables.setdefault(name, number)
        return converted


def scan_rows(table: RowTable, *kinds: RowKind) -> RowScan:
    """Check and convert every row of a file, as the first kind that fits.

    If an instruction has earlier turns, all instructions become conversations.
    """
    scan, has_turns = RowScan(), False

    def convert() -> Iterator[Row]:
        nonlocal has_turns
        for number, read in enumerate(table.read()):
            with collect_problems(scan.problems):
                row = scan.convert(table, number, read(), kinds)
                instructions = scan.shapes.get(("rows", _ALPACA), [])
                has_turns = has_turns or (instructions[-1:] == [number] and "messages" in row)
                yield row
            if len(scan.problems) >= MAX_EXPLAINED_ROWS:
                break

    def to_conversation(number: int) -> Row:
        row = stored[number]
        is_plain = number in instructions and "messages" not in row
        return {"messages": to_messages(row["prompt"], row["completion"])} if is_plain else row

    stored = StoredSequence(convert())
    instructions = frozenset(scan.shapes.get(("rows", _ALPACA), ()))
    scan.rows = LazySequence(len(stored), to_conversation) if has_turns else stored
    return scan


def unknown_columns(row: Row, kinds: Sequence[RowKind], empty: Sequence[str]) -> Problem:
    """Build the problem of a row with unknown columns, perhaps because values are null or NaN."""
    kind = "rows" if "rows" in kinds else kinds[0]
    read_as, expected = _EXPECTED[kind]
    names = join_words(row, last="and") if row else "none"
    what = f"The row has the columns {names}, which {read_as} does not recognise."
    what += f" Empty: {join_words(empty, last='and')} (null or NaN)." if empty else ""
    advice = next((_OTHER_KIND[name] for name in _OTHER_KIND if kind == "rows" and name in row), None)
    return problem_of("TP018", file="", what=what, expected=expected, next=advice)


def read_dataset(name: str, kind: RowKind = "rows") -> RowFile:
    """Read training rows from a built-in dataset, a task of reasoning-gym, or the path of a file or folder.

    Of text only the column `text` is used. A file without rows, or with rows of another form, raises a ProblemError
    with exit code 2.
    """
    if (missing := missing_dataset(name)) is not None:
        raise ProblemError([missing], exit_code=2)
    if name.startswith(GYM):
        return RowFile(name=name, path=Path(name), lines=(), warnings=(), **gym_tasks(name))
    return read_table(name, kind, built_in=name in DATASETS)


def gym_tasks(name: str) -> dict[str, Any]:
    """Draw the tasks of reasoning-gym that a name such as `reasoning-gym:leg_counting?size=500&seed=1` describes.

    The package draws the entries of a task from a seed and scores answers to them; the reward `reasoning_gym` calls it.
    Return `rows`, `sha256` over the entries as lines of JSON, and `generator`, as the manifest records it, or raise a
    ProblemError with exit code 2.
    """
    try:
        known = importlib.import_module(f"{GYM_PACKAGE}.factory").DATASETS
    except ImportError as error:
        what = f"The dataset {name} needs the package reasoning-gym, which cannot be imported: {error}."
        raise ProblemError([problem_of("TP907", file=name, what=what)], exit_code=2) from error
    task, _, query = name.removeprefix(GYM).partition("?")
    if task not in known:
        near = difflib.get_close_matches(task, known, n=1)
        hint = f"Did you mean {near[0]}?" if near else f"It has {len(known)} tasks, such as {min(known)}."
        what = f"reasoning-gym has no task {task!r}."
        raise ProblemError([problem_of("TP919", file=name, what=what, next=hint)], exit_code=2)
    options: dict[str, Any] = {"size": 500, "seed": 0}
    for key, text in parse_qsl(query, keep_blank_values=True):
        options[key] = text
        with suppress(ValueError):
            options[key] = json.loads(text)
    try:
        dataset = importlib.import_module(GYM_PACKAGE).create_dataset(task, **options)
        entries = [dataset[number] for number in range(len(dataset))]
    except (TypeError, ValueError, AssertionError, LookupError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        what = f"reasoning-gym refuses the settings of {task}: {reason.rstrip('.')}."
        raise ProblemError([problem_of("TP919", file=name, what=what)], exit_code=2) from error
    rows = []
    for entry in entries:
        answer = entry.get("answer")
        known_answer = {"final_answer": answer} if isinstance(answer, str) and answer else {}
        asked = {"kind": REASONING_GYM, "name": task, "entry": entry}
        rows.append({"prompt": entry["question"], "task": asked, **known_answer})
    drawn = {"package": GYM_DISTRIBUTION, "version": version(GYM_DISTRIBUTION), "task": task}
    drawn["configuration"] = json.loads(json.dumps(asdict(dataset.config), default=str))
    sha256 = sha256_lines(json.dumps(entry, default=str, sort_keys=True) for entry in entries)
    return {"rows": tuple(rows), "sha256": sha256, "generator": drawn}


def read_table(name: str, kind: RowKind, *, built_in: bool) -> RowFile:
    """Read and check a file of rows, or raise a ProblemError with exit code 2."""
    path = FOLDER / f"{name}.jsonl" if built_in else Path(name)
    table = open_table(path)
    scan = scan_rows(table, kind)
    if scan.problems:
        raise ProblemError(list(truncate_problems(scan.problems)), exit_code=2)
    ignored = {"columns": [*scan.ignored], "files": table.ignored_files}
    texts = [f"Ignored {kind}: {join_words(names, last='and')}." for kind, names in ignored.items() if names]
    notes = [problem_of("TP182", file=str(path), what=" ".join(texts), why=None)] if texts else []
    return RowFile(
        name=name if built_in else path.name,
        path=path,
        rows=scan.rows,
        lines=table.lines,
        sha256=table.sha256,
        warnings=tuple(notes),
        variables=scan.variables,
    )


def read_eval_set(name: str) -> RowFile:
    """Read the items of a built-in evaluation set or of a file, or raise a ProblemError with exit code 2."""
    if (missing := missing_eval_set(name)) is not None:
        raise ProblemError([missing], exit_code=2)
    file = read_table(name, "items", built_in=name in EVAL_SETS)
    problems, first_lines = [], dict[str, int]()
    for line, item in zip(file.lines, file.rows, strict=True):
        if (first := first_lines.setdefault(item["id"], line)) != line:
            what = f"The id {item['id']!r} is already used in line {first}."
            problems.append(problem_of("TP012", file=str(file.path), line=line, pointer="/id", what=what))
    if problems:
        raise ProblemError(problems, exit_code=2)
    return file


# Kinds of rows, and how the prompt of each is written.

Kind = Literal["trace", "pair", "conversation", "task", "text", "begun"]
"""Kind of a converted row; `begun` is an answer whose prompt is the common beginning of a pair."""

AS_WRITTEN = "{prompt}"  # template of prompts that are followed by the completion without a separator
WITH_NEWLINE = "{prompt}\n"  # template of the prompts of traces; up to schema version 1.1, of any plain prompt

_KINDS: tuple[tuple[str, Kind, str], ...] = (
    ("messages", "conversation", "conversations"),
    ("text", "text", "plain texts"),
    ("begun", "begun", "answers without a prompt"),
    ("completion", "pair", "prompts with completions"),
    ("task", "task", "tasks"),
    ("steps", "trace", "reasoning traces"),
)
"""The first column that a row has, its kind, and the name of the kind in messages."""


def row_kind(row: Mapping[str, Any]) -> Kind:
    """Return the kind of a converted row, or of the chosen answer of a pair."""
    row = row.get("chosen", row)
    return next((kind for column, kind, _ in _KINDS if column in row), "trace")


def default_template(kind: Kind) -> str:
    """Return the default template of plain prompts of a kind."""
    return WITH_NEWLINE if kind == "trace" else AS_WRITTEN


def find_template(row: Mapping[str, Any], template: str | None) -> str | None:
    """Return the template of plain prompts, by default the one of its kind, or None if the row has another form."""
    kind = row_kind(row)
    if kind not in ("trace", "pair", "task"):
        return None
    return default_template(kind) if template is None else template


def add_system_prompt(rows: Sequence[Row], system_prompt: str | None) -> Sequence[Row]:
    """Return converted rows with the key `system_prompt`, which rendering adds to their prompts."""
    if system_prompt is None:
        return rows
    extra = {"system_prompt": system_prompt}

    def extend(number: int) -> Row:
        row = rows[number]
        return row | extra | {side: row[side] | extra for side in SIDES if side in row}

    return LazySequence(len(rows), extend)


def check_kinds(kinds: Counter[Kind], template: str | None, file: str) -> Iterator[Problem]:
    """Yield an error if no row uses the configured template, and a warning if rows are of several kinds."""
    # Runs of earlier versions record WITH_NEWLINE without having been configured so.
    if template not in (None, WITH_NEWLINE) and set(kinds) == {"conversation"}:
        what = f"data.template is {format_value(template)}, but every row is a conversation, which the chat template "
        yield problem_of("TP006", file=file, pointer="/data/template", what=f"{what}writes.")
    if len(kinds) > 1:
        names = {kind: name for _, kind, name in _KINDS}
        counts = ", ".join(f"{count:,} {names[kind]}" for kind, count in kinds.most_common())
        yield problem_of("TP027", file=file, what=f"The rows are of several kinds: {counts}.")
