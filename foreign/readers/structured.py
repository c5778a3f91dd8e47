"""Files of values: JSON, JSON lines, YAML and CSV parsed, and handed to the reader of their shape."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from foreign.readers.documents import MEAN_NOTE, DocumentWalk, is_evaluation, is_model, walk
from foreign.readers.evaluation_tools import is_record, is_samples, read_record, read_samples, results_of
from foreign.readers.predictions import predictions_in, predictions_of
from foreign.readers.rows import is_metric_row, is_trainer_summary, row_values
from foreign.readers.settings import is_example_name, remark_of, unfilled_places
from foreign.readers.statement import Citation, Fact
from foreign.readers.text import Text, finite
from foreign.readers.training_tools import is_history, read_history
from foreign.readers.view import FileReading, MetricRow
from schemas.formats import format_value, quantity
from schemas.problems import Lines, Problem, problem_of, truncate_problems, unknown_lines
from schemas.reading import ParseResult, read_json

_FACTS = {
    "global_step": "training.steps_done",
    "max_steps": "training.steps_planned",
    "num_train_epochs": "training.epochs_planned",
    "epoch": "training.epochs_done",
    "train_batch_size": "training.process_batch_size",
    "save_steps": "training.save_steps",
    "best_metric": "result.best_metric",
    "num_input_tokens_seen": "result.tokens_seen",
}
_OF_SUMMARY = {"train_loss": "result.mean_loss", "train_runtime": "result.train_seconds"}


def is_trainer_state(value: Any) -> bool:
    """Return whether a document is a trainer_state.json, by its keys."""
    return isinstance(value, dict) and isinstance(value.get("log_history"), list) and "global_step" in value


def read_trainer_state(value: dict[str, Any], lines: Lines, file: str) -> FileReading:
    """Return the rows of the log, and the facts; the last row of a finished run holds the mean loss, not the last."""

    def source(pointer: str) -> Citation:
        return Citation(file=file, line=lines(pointer), pointer=pointer)

    facts = [
        Fact(name=name, value=number, source=source(f"/{key}"))
        for key, name in _FACTS.items()
        if (number := _number(value.get(key))) is not None and not (key == "num_input_tokens_seen" and number == 0)
    ]
    rows = []
    for index, item in enumerate(value["log_history"]):
        if not isinstance(item, dict):
            continue
        if is_trainer_summary(item):
            facts += [
                Fact(
                    name=name,
                    value=number,
                    source=source(f"/log_history/{index}/{key}"),
                    note=MEAN_NOTE if key == "train_loss" else None,
                )
                for key, name in _OF_SUMMARY.items()
                if (number := _number(item.get(key))) is not None
            ]
        elif values := row_values(item):
            rows.append(MetricRow(values=values, source=source(f"/log_history/{index}")))
    return FileReading(tool="Hugging Face Trainer", facts=tuple(facts), metrics=tuple(rows))


def _number(value: Any) -> int | float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return finite(value)


HF_TRAINER = "Hugging Face Trainer"

Numbered = tuple[int, Any]
"""A line and the value that stands on it."""


def read_json_file(text: Text, file: str, where: str) -> FileReading:
    """Return what a JSON document gives, whatever its shape.

    Args:
        text: The file's text.
        file: Its path inside the folder.
        where: Its name in problems.
    """
    parsed = _json(text.text, where)
    if not parsed.is_read:
        return FileReading(encoding=text.encoding, problems=(*text.problems, *parsed.problems))
    reading = document_reading(parsed.value, parsed.lines, file, where)
    return replace(reading, encoding=text.encoding, problems=(*text.problems, *parsed.problems, *reading.problems))


def read_yaml_file(text: Text, file: str, where: str) -> FileReading:
    """Return what a YAML configuration states; W&B's `key: {value: …}` is read as `key: …`."""
    from schemas.reading import parse_yaml

    parsed = parse_yaml(text.text.encode("utf-8", "replace"), file=where)
    problems = (*text.problems, *(replace(problem, severity="warning") for problem in parsed.problems))
    if not parsed.is_read:
        return FileReading(encoding=text.encoding, problems=problems)
    value = parsed.value
    if isinstance(value, dict) and ("wandb_version" in value or "_wandb" in value):
        value = {
            key: item["value"] if isinstance(item, dict) and "value" in item else item for key, item in value.items()
        }
    reading = document_reading(value, parsed.lines, file, where, tool="configuration")
    return replace(reading, encoding=text.encoding, problems=(*problems, *reading.problems))


def document_reading(value: Any, lines: Lines, file: str, where: str, *, tool: str = "JSON document") -> FileReading:
    """Return what a document's value gives."""
    if is_trainer_state(value):
        return read_trainer_state(value, lines, file)
    if is_history(value) and not is_example_name(file):
        return read_history(value, lines, file)
    answers = predictions_in(value, file, lines)
    found = DocumentWalk(file=file, lines=lines, is_evaluation=is_evaluation(value, file), is_model=is_model(value))
    remark = remark_of(value)
    found.results_too = remark is None and not is_example_name(file)
    walk(_without(value, answers.where), found)
    gaps = list(unfilled_places(value))
    problems = _form_problems(found, remark, gaps, where)
    is_form = bool(problems)
    summary = isinstance(value, dict) and is_trainer_summary(value)
    gave = found.facts or found.metrics or found.scores or answers.rows
    only_answers = bool(answers.rows) and answers.where == ""
    return FileReading(
        tool=(HF_TRAINER if summary else "predictions" if only_answers else tool) if gave or is_form else None,
        template=is_form,
        facts=tuple(found.facts),
        metrics=tuple(found.metrics),
        scores=tuple(found.scores),
        predictions=answers.rows if found.results_too else (),
        statements=(*found.statements, *results_of(value, file, lines)) if found.results_too else (),
        problems=tuple(problems),
    )


def read_rows_file(text: Text, file: str, where: str) -> FileReading:
    """Return what a file of JSON lines gives: answers, metric rows, or the summary of a run."""
    values: list[Numbered] = []
    problems = list(text.problems)
    bad: list[Problem] = []
    for line in text.lines():
        parsed = _json(line.text, where)
        if parsed.is_read:
            values.append((line.number, parsed.value))
        else:
            bad += [replace(problem, line=line.number) for problem in parsed.problems[:1]]
    problems += truncate_problems(bad)
    reading = rows_reading(values, file)
    return replace(reading, encoding=text.encoding, problems=(*problems, *reading.problems))


def read_csv_file(text: Text, file: str, where: str) -> FileReading:
    """Return what a table gives: answers or metric rows, each with the line on which it begins."""
    reader = csv.DictReader(io.StringIO(text.text.replace("\x00", ""), newline=""))
    values: list[Numbered] = []
    problems = list(text.problems)
    try:
        begins = 2
        for row in reader:
            values.append((begins, _cells(row)))
            begins = reader.line_num + 1
    except csv.Error as error:
        problems.append(problem_of("TP521", file=where, what=f"The table cannot be read: {error}."))
    reading = rows_reading(values, file, tool="table")
    return replace(reading, encoding=text.encoding, problems=tuple(problems))


def _cells(row: dict[str | Any, str | Any]) -> dict[str, Any]:
    """Return the cells of a row; a first column without a name is the index that pandas writes, here of epochs."""
    cells = {key: value for key, value in row.items() if key is not None and value is not None}
    if "" in cells and "epoch" not in cells and "step" not in cells:
        cells = {key or "epoch": value for key, value in cells.items()}
    return cells


def rows_reading(values: Sequence[Numbered], file: str, *, tool: str = "JSON lines") -> FileReading:
    """Return what rows give."""
    if is_example_name(file):
        return FileReading(tool=tool, template=True)
    if is_record(values):
        return read_record(values, file)
    if is_samples(values):
        return read_samples(values, file)
    if answers := predictions_of(values, file):
        return FileReading(tool="predictions", predictions=answers)
    found = DocumentWalk(file=file, lines=unknown_lines)
    rows: list[MetricRow] = []
    planned: dict[int, int] = {}
    for line, value in values:
        if not isinstance(value, dict):
            continue
        nested = [item for item in value.values() if isinstance(item, dict) and is_trainer_summary(item)]
        if nested or is_trainer_summary(value):
            _summary_row(value, found, line)
            continue
        numbers = row_values(value)
        if isinstance(total := value.get("total_steps"), int) and "current_steps" in value:
            planned.setdefault(total, line)
        if is_metric_row(numbers) and any("loss" in name or "reward" in name or "acc" in name for name in numbers):
            rows.append(MetricRow(values=numbers, source=Citation(file=file, line=line)))
    # LLaMA-Factory states the number of all steps in each row; a resumed training may be given more.
    found.facts += [
        Fact(name="training.steps_planned", value=total, source=Citation(file=file, line=line))
        for total, line in planned.items()
        if not isinstance(total, bool)
    ]
    gave = rows or found.facts or found.scores
    return FileReading(
        tool=tool if gave else None,
        facts=tuple(found.facts),
        metrics=tuple(rows),
        scores=tuple(found.scores),
        statements=tuple(found.statements),
    )


def _summary_row(value: dict[str, Any], found: DocumentWalk, line: int) -> None:
    here = DocumentWalk(file=found.file, lines=lambda _pointer: line)
    walk(value, here)
    found.facts += here.facts
    found.scores += here.scores
    found.statements += here.statements


def _form_problems(found: DocumentWalk, remark: str | None, gaps: list[tuple[str, str]], where: str) -> list[Problem]:
    """Return why a document is a form or an example, and what is missing in it."""
    problems: list[Problem] = []
    if not found.results_too:
        what = "The document says that it is a template or an example" if remark else "The file is named as an example"
        left = f"; not read: {quantity(found.withheld, 'result')}." if found.withheld else "."
        problems.append(problem_of("TP518", file=where, what=what + left, pointer=remark))
    problems += truncate_problems(
        (
            problem_of("TP518", file=where, what=f"The value is still {format_value(text)}.", pointer=pointer)
            for pointer, text in gaps
        ),
        limit=3,
    )
    if found.missing and not found.scores:
        more = f" and {len(found.missing) - 1} more" if len(found.missing) > 1 else ""
        verb = "are" if more else "is"
        what = f"{found.missing[0]}{more} {verb} null: nothing was measured."
        problems.append(problem_of("TP518", file=where, what=what, pointer=found.missing[0]))
    return problems


def _json(text: str, where: str) -> ParseResult:
    """Return a JSON value; what our own documents must not have (NaN, a key twice) is a warning here."""
    parsed = read_json(text, file=where)
    return replace(parsed, problems=tuple(replace(problem, severity="warning") for problem in parsed.problems))


def _without(value: Any, key: str | None) -> Any:
    """Return a document without the list of answers that was read already."""
    if key is None:
        return value
    return [] if key == "" else {name: item for name, item in value.items() if name != key}
