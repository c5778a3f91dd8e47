"""Answers of a model under other people's field names, as JSON, JSON lines or a table."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from foreign.readers.keys import plain
from foreign.readers.statement import Citation
from foreign.readers.view import Prediction
from schemas.problems import Lines

_ID = [
    "id",
    "eval_id",
    "item_id",
    "example_id",
    "question_id",
    "sample_id",
    "task_id",
    "doc_id",
    "uid",
    "idx",
    "index",
    "qid",
]
_PROMPT = ["prompt", "question", "input", "instruction", "query", "problem"]
_OUTPUT = [
    "output_text",
    "output",
    "prediction",
    "pred",
    "response",
    "completion",
    "generated_text",
    "generated",
    "generation",
    "model_output",
    "model_response",
    "raw_output",
    "model_answer",
    "generated_output",
    "llm_output",
    "resps",
]
_EXPECTED = [
    "expected",
    "expected_answer",
    "target",
    "label",
    "reference",
    "gold",
    "gold_answer",
    "ground_truth",
    "correct_answer",
    "reference_answer",
    "expected_output",
    "answer_key",
]
_EXTRACTED = [
    "extracted_answer",
    "parsed_answer",
    "predicted_answer",
    "pred_answer",
    "extracted",
    "final_prediction",
    "filtered_resps",
]
_CORRECT = ["correct", "is_correct", "exact_match", "match", "em", "passed", "is_match", "right", "acc"]
_REASONING = ["reasoning", "rationale", "thought", "chain_of_thought", "cot"]
_LISTS = [
    "predictions",
    "results",
    "samples",
    "items",
    "details",
    "examples",
    "outputs",
    "records",
    "generations",
    "responses",
]

_OF_ANSWERS = re.compile(r"pred|output|generat|respons|answer|eval|result|sample", re.IGNORECASE)
"""Names of files in which `answer` and `final_answer` are the model's output."""


@dataclass(frozen=True, kw_only=True)
class PredictionList:
    """Answers inside a document."""

    where: str | None
    """Key of the list; the empty string: the document itself. None: it is missing."""
    rows: tuple[Prediction, ...]
    """The answers."""


def predictions_in(value: Any, file: str, lines: Lines) -> PredictionList:
    """Return the answers of a document that is a list of them, or holds one under a usual name."""
    lists = [("", value)] if isinstance(value, list) else []
    if isinstance(value, dict):
        lists = [(key, value[key]) for key in value if plain(key) in _LISTS and isinstance(value[key], list)]
    for key, items in lists:
        prefix = f"/{key}" if key else ""
        numbered = [(index, item) for index, item in enumerate(items)]
        rows = _read(numbered, file, lambda index, prefix=prefix: _place(file, lines, f"{prefix}/{index}"))
        if rows:
            return PredictionList(where=key, rows=rows)
    return PredictionList(where=None, rows=())


def predictions_of(values: Sequence[tuple[int, Any]], file: str) -> tuple[Prediction, ...]:
    """Return the answers of rows with their lines; empty where the rows are something else."""
    return _read(values, file, lambda line: Citation(file=file, line=line))


def _read(values: Sequence[tuple[int, Any]], file: str, source: Any) -> tuple[Prediction, ...]:
    rows = [(number, _flat(item)) for number, item in values if isinstance(item, dict)]
    if not rows or len(rows) < len(values):
        return ()
    names = set().union(*(row.keys() for _, row in rows))
    output = _output_key(names, file)
    if output is None and not (names & set(_EXTRACTED) or ({*_CORRECT} & names and names & {*_ID, *_PROMPT})):
        return ()
    if not names & {*_ID, *_PROMPT, *_EXPECTED, *_CORRECT, "answer"}:
        return ()
    return tuple(_prediction(row, output, source(number)) for number, row in rows)


def _output_key(names: set[str], file: str) -> str | None:
    """Return which field holds what the model wrote; `answer` only where another field holds the right answer."""
    for name in _OUTPUT:
        if name in names and not (name == "output" and "instruction" in names and not names & {*_EXPECTED, *_CORRECT}):
            return name
    of_answers = _OF_ANSWERS.search(file.rpartition("/")[2]) is not None
    for name in ("final_answer", "answer"):
        if (
            name in names
            and of_answers
            and (names & {*_EXPECTED, *_CORRECT} or "model" in names or name == "final_answer")
        ):
            return name
    return None


def _prediction(row: dict[str, Any], output: str | None, source: Citation) -> Prediction:
    expected = _first(row, _EXPECTED)
    if expected is None and output not in (None, "answer") and "answer" in row:
        expected = row["answer"]
    steps = row.get("steps")
    reasoning = _first(row, _REASONING)
    if reasoning is None and isinstance(steps, list):
        reasoning = "\n".join(str(one.get("content", "")) for one in steps if isinstance(one, dict))
    return Prediction(
        source=source,
        id=text_of(_first(row, _ID)),
        prompt=text_of(_first(row, _PROMPT)),
        expected=text_of(expected),
        output_text=text_of(row.get(output)) if output else None,
        extracted_answer=text_of(_first(row, _EXTRACTED)),
        correct=_truth(_first(row, _CORRECT)),
        reasoning=text_of(reasoning) or None,
    )


def _flat(item: dict[str, Any]) -> dict[str, Any]:
    """Return a row by plain names, with what stands in its group `meta` or `metadata` beside it."""
    row = {plain(str(key)): value for key, value in item.items()}
    for group in ("meta", "metadata", "info", "item"):
        if isinstance(row.get(group), dict):
            row = {plain(str(key)): value for key, value in row[group].items()} | row
    return row


def _first(row: dict[str, Any], names: Sequence[str]) -> Any:
    return next((row[name] for name in names if row.get(name) is not None), None)


def text_of(value: Any) -> str | None:
    """Return text as it is, numbers as they are written, the text in a list of one (lm-eval); None for other values."""
    while isinstance(value, list) and len(value) == 1:
        value = value[0]
    if isinstance(value, bool) or value is None:
        return None if value is None else str(value)
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, float) or (isinstance(value, int) and abs(value) < 10**300) else None


def _truth(value: Any) -> bool | None:
    if isinstance(value, str):
        words = {
            "true": True,
            "yes": True,
            "1": True,
            "1.0": True,
            "false": False,
            "no": False,
            "0": False,
            "0.0": False,
        }
        return words.get(value.strip().lower())
    return bool(value) if isinstance(value, bool | int | float) and value in (0, 1) else None


def _place(file: str, lines: Lines, pointer: str) -> Citation:
    return Citation(file=file, line=lines(pointer), pointer=pointer)
