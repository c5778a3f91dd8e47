"""Read the answers of a model under the field names in `keys.toml`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from evidence.imports.keys import TABLE, plain
from evidence.imports.run import Citation, Prediction
from schemas.problems import Lines

FIELDS: dict[str, list[str]] = TABLE["predictions"]
_JUDGED = {*FIELDS["expected"], *FIELDS["correct"]}
_IDENTIFIED = {*FIELDS["id"], *FIELDS["prompt"]}
_TRUTH = {"true": True, "yes": True, "1": True, "1.0": True, "false": False, "no": False, "0": False, "0.0": False}

_ANSWER_FILE = re.compile(r"pred|output|generat|respons|answer|eval|result|sample", re.IGNORECASE)
"""Names of files in which `answer` and `final_answer` are the model's output."""


def find_predictions(value: Any, file: str, lines: Lines) -> tuple[str | None, tuple[Prediction, ...]]:
    """Read the answers of a document that is a list of answers or has one under a usual key.

    Returns:
        Key of the list (empty for the document itself, None if there is none) and the answers.
    """
    document = value if isinstance(value, dict) else {"": value}
    for key, items in document.items():
        if isinstance(items, list) and (key == "" or plain(key) in TABLE["paths"]["prediction_lists"]):
            prefix = f"/{key}" if key else ""
            places = [Citation.at(file, lines, f"{prefix}/{index}") for index in range(len(items))]
            if rows := read_predictions(items, file, places):
                return key, rows
    return None, ()


def read_predictions(items: Sequence[Any], file: str, places: Sequence[Citation]) -> tuple[Prediction, ...]:
    """Read the answers of a list, or nothing if its items are something else."""
    rows = [_flatten(item) for item in items if isinstance(item, dict)]
    if not rows or len(rows) < len(items):
        return ()
    names = set().union(*rows)
    output = _output_key(names, file)
    is_marked = names & {*FIELDS["correct"]} and names & _IDENTIFIED
    if output is None and not names & {*FIELDS["extracted_answer"]} and not is_marked:
        return ()
    if not names & {*_IDENTIFIED, *_JUDGED, "answer"}:
        return ()
    return tuple(_prediction(row, output, place) for row, place in zip(rows, places, strict=True))


def _output_key(names: set[str], file: str) -> str | None:
    """Return the field that holds the output; `answer` only if another field holds the right one."""
    for name in FIELDS["output_text"]:
        if name in names and not (name == "output" and "instruction" in names and not names & _JUDGED):
            return name
    is_answer_file = _ANSWER_FILE.search(file.rpartition("/")[2]) is not None
    if is_answer_file and "final_answer" in names:
        return "final_answer"
    return "answer" if is_answer_file and "answer" in names and (names & _JUDGED or "model" in names) else None


def _prediction(row: dict[str, Any], output: str | None, source: Citation) -> Prediction:
    found = {name: next((row[key] for key in keys if row.get(key) is not None), None) for name, keys in FIELDS.items()}
    if found["expected"] is None and output not in (None, "answer"):
        found["expected"] = row.get("answer")
    found["output_text"] = row.get(output) if output else None
    correct = found.pop("correct")
    correct = _TRUTH.get(correct.strip().lower()) if isinstance(correct, str) else correct
    is_truth = isinstance(correct, bool | int | float) and correct in (0, 1)
    texts = {name: _text(value) for name, value in found.items()}
    return Prediction(source=source, correct=bool(correct) if is_truth else None, **texts)


def _flatten(item: dict[str, Any]) -> dict[str, Any]:
    """Return a row by plain names, joined with its group `meta`, `metadata`, `info` or `item`."""
    row = {plain(str(key)): value for key, value in item.items()}
    for group in ("meta", "metadata", "info", "item"):
        if isinstance(row.get(group), dict):
            row = {plain(str(key)): value for key, value in row[group].items()} | row
    return row


def _text(value: Any) -> str | None:
    """Return text, numbers as they are written, and the text in a list of one; None for other values."""
    while isinstance(value, list) and len(value) == 1:
        value = value[0]
    is_short = isinstance(value, str | bool | float) or (isinstance(value, int) and abs(value) < 10**300)
    return str(value) if is_short else None
