"""Console logs: metric rows in any of their forms, the stages they belong to, and what the program printed."""

from __future__ import annotations

from dataclasses import replace

from foreign.readers.arithmetic import from_speeds
from foreign.readers.console.lines import Bar, LineRow, bar_of, dict_row, step_row, with_sound_steps
from foreign.readers.console.notes import (
    ConsoleLog,
    note_end,
    note_heading,
    note_other_forms,
    note_traceback,
    note_words,
    quote,
)
from foreign.readers.documents import MEAN_NOTE
from foreign.readers.keys import plain
from foreign.readers.settings import Region, is_example_name, regions
from foreign.readers.text import LogLine, Text
from foreign.readers.view import FileReading, MetricRow
from schemas.formats import quantity
from schemas.problems import Problem, problem_of, truncate_problems

_LONGEST = 5000
"""Characters of a line that are looked at."""

_STARTS = "***** Running training *****"


def read_log(text: Text, file: str, where: str) -> FileReading:
    """Return what a log gives; parts that are examples or empty forms are left out and named.

    Args:
        text: The file's text.
        file: Its path inside the folder.
        where: Its name in problems.
    """
    parts = regions([replace(line, text=line.text[:_LONGEST]) for line in text.lines()])
    if is_example_name(file):
        parts = [Region(form=line, lines=part.lines) for part in parts if (line := part.form or _first(part))]
    log = ConsoleLog(file=file)
    for part in parts:
        if not part.is_form:
            _read_part(part, log)
    rows = with_sound_steps(log.rows)
    forms = [part for part in parts if part.is_form]
    problems = [*text.problems, *_form_problem(forms, where), *_traceback_problems(log, where)]
    gave = bool(rows or log.facts or log.scores or log.tracebacks)
    return FileReading(
        tool=log.tool if gave or forms else None,
        encoding=text.encoding,
        template=bool(forms),
        facts=tuple(log.facts.values()),
        metrics=tuple(rows),
        scores=tuple(log.scores),
        statements=tuple(log.statements) if log.stage == 1 else (),  # Of several trainings, each has its own steps.
        problems=tuple(problems),
    )


def _first(part: Region) -> LogLine | None:
    return part.lines[0] if part.lines else None


def _read_part(part: Region, log: ConsoleLog) -> None:
    for line in part.lines:
        note_traceback(line, log)
        note_heading(line, log)
        if _STARTS in line.text and log.of_stage():
            log.stage_ended = True
        if note_other_forms(line, log):
            continue
        bar = bar_of(line.text) if "%|" in line.text else None
        row = dict_row(line.text) if "{" in line.text else None
        if bar is not None:
            _note_bar(bar, line, log)
        if row is not None:
            log.in_evaluation = False
            _add_dict(row, line, log)
        elif bar is None and (words := step_row(line.text)) is not None:
            _add_words(words, line, log)
        elif bar is None:
            note_words(line, log)
    note_end(log)


def _note_bar(bar: Bar, line: LogLine, log: ConsoleLog) -> None:
    if not bar.is_training:
        return
    if log.bar is not None and bar.total != log.bar.total and bar.done < log.bar.done and log.of_stage():
        log.stage_ended = True
    log.bar = bar
    if not any("loss" in name for name in bar.values):
        return
    place = "step_of_epoch" if bar.by_epoch else "step"
    values: dict[str, float | None] = {place: bar.done, **bar.values}
    row = MetricRow(values=values, source=log.source(line), stage=_stage(values, log), inferred=(place,))
    if log.rows and log.rows[-1].values.get(place) == bar.done and log.rows[-1].stage == row.stage:
        log.rows.pop()  # A bar is drawn again with the same count; its last state counts.
    log.rows.append(row)


def _add_dict(row: LineRow, line: LogLine, log: ConsoleLog) -> None:
    if row.is_summary:
        for name, fact in (("train_loss", "result.mean_loss"), ("train_runtime", "result.train_seconds")):
            value = row.values.get(name)
            if value is not None:
                more = {"note": MEAN_NOTE} if name == "train_loss" else {}
                log.fact(fact, value, line, **more)
        numbers = {plain(name): number for name, number in row.values.items() if number is not None}
        log.statements += from_speeds(numbers, log.source(line))
        if log.bar is not None and log.bar.done == log.bar.total and not log.bar.by_epoch:
            note = "The progress bar stands at its end when the training's summary is printed."
            log.fact("training.steps_done", log.bar.total, line, how="inferred", note=note)
        log.stage_ended = True
        return
    values = dict(row.values)
    inferred: tuple[str, ...] = ()
    stage = _stage(values, log)
    if "step" not in values and log.bar is not None and not log.bar.by_epoch:
        values = {"step": log.bar.done, **values}
        inferred = ("step",)
    log.rows.append(MetricRow(values=values, source=log.source(line), stage=stage, inferred=inferred))


def _add_words(row: LineRow, line: LogLine, log: ConsoleLog) -> None:
    if row.steps_planned is not None:
        note = "The number behind the step."
        log.fact("training.steps_planned", row.steps_planned, line, how="inferred", note=note)
    log.in_evaluation = False
    stage = _stage(row.values, log)
    if log.rows and log.rows[-1].stage == stage and log.rows[-1].values == row.values:
        return  # Printed twice, by the program and by its logger.
    log.rows.append(MetricRow(values=row.values, source=log.source(line), stage=stage))


def _stage(values: dict[str, float | None], log: ConsoleLog) -> int:
    """Return the stage of a row: a new one after the end of another, or where step or epoch go back."""
    if log.stage_ended or _goes_back(values, log):
        log.stage += 1 if log.of_stage() else 0
        log.stage_ended = False
    return log.stage


def _goes_back(values: dict[str, float | None], log: ConsoleLog) -> bool:
    if not log.rows or log.rows[-1].stage != log.stage:
        return False
    for name in ("step", "epoch"):
        now, before = values.get(name), log.rows[-1].values.get(name)
        if now is not None and before is not None and name not in log.rows[-1].inferred:
            return now < before
    return False


def _form_problem(forms: list[Region], where: str) -> list[Problem]:
    if not forms or forms[0].form is None:
        return []
    first = forms[0].form
    lines = sum(len(part.lines) for part in forms)
    opens = "The file is named as an example" if is_example_name(where) else f"{quote(first.text)} opens an empty form"
    what = f"{opens}; not read: {quantity(lines, 'line')}."
    return [problem_of("TP518", file=where, what=what, line=first.number)]


def _traceback_problems(log: ConsoleLog, where: str) -> list[Problem]:
    found = []
    for begins, line, before in log.tracebacks:
        after = len(log.rows) - before
        what = f"The log says {quote(line.text)}; rows of metrics after it: {after}."
        found.append(problem_of("TP520", file=where, what=what, line=begins))
    return list(truncate_problems(found, limit=3))
