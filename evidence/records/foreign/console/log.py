"""Console logs: metric rows in any of their forms, the stages they belong to, and what the program said of itself."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from evidence.records.foreign import rules
from evidence.records.foreign.console.lines import (
    Bar,
    LineRow,
    bar_of,
    dict_row,
    key_value,
    score_of,
    step_row,
    with_sound_steps,
)
from evidence.records.foreign.documents import MEAN_NOTE
from evidence.records.foreign.keys import OF_EVALUATION, is_of_evaluation
from evidence.records.foreign.numbers import finite, number_of
from evidence.records.foreign.template import Region, is_example_name, regions
from evidence.records.foreign.text import Line, Text
from evidence.records.foreign.view import Fact, FileReading, MetricRow, Scalar, Score, Source
from schemas.problems.problem import Problem
from schemas.problems.rule import first_few, problem_of
from schemas.problems.words import counted

_DEVICE = re.compile(r"\b(Tpu|Cuda|Rocm|Gpu|Cpu)Device\(id=\d+|\bTFRT_(CPU)_\d+")
_DEVICE_LIST = re.compile(r"\[((?:\w+Device\([^()]*(?:\([^()]*\)[^()]*)*\)(?:,\s*)?)+)\]")
_PLATFORM = {"tpu": "tpu", "cuda": "gpu", "rocm": "gpu", "gpu": "gpu", "cpu": "cpu"}
_SMI = re.compile(
    r"^\|\s+\d+\s+((?:NVIDIA |Tesla |GeForce |Quadro )[\w .-]*?\w)(?:\s{2,}|\s+\.\.\.|\s+(?:Off|On|WDDM)\b)"
)
_MEMORY = re.compile(r"RESOURCE_EXHAUSTED|CUDA out of memory|Ran out of memory in memory space|OutOfMemoryError")
_TRAINABLE = re.compile(r"trainable params:\s*([\d,]+)\s*\|\|\s*all params:\s*([\d,]+)")
_FINAL = re.compile(
    r"\b(final|last|mean|average|avg|best|lowest)[ _](?:train(?:ing)?[ _])?loss\b\s*[:=]\s*(\S+)", re.IGNORECASE
)
_RUN = r"^\W*(?:\w+ )?(?:training|run|fine-?tuning) "
_DONE = re.compile(_RUN + r"(?:is )?(?:completed?|finished|succeeded|done)\b", re.IGNORECASE)
_FAILED = re.compile(_RUN + r"(?:has )?failed\b", re.IGNORECASE)
_ERROR = re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception|Interrupt|Exit)\b")
_LOSSES = {"final": "last", "last": "last", "mean": "mean", "average": "mean", "avg": "mean"}
_HEADING = re.compile(r"(?:\*{3,}|={3,}|#{2,}|-{3,})\s*([A-Za-z][^*=#\n]{1,60})")
_OF_TRAINING = re.compile(r"\b(?:train|fine-?tun)", re.IGNORECASE)
_LONGEST = 5000
"""Characters of a line that are looked at."""

_STARTS = "***** Running training *****"


@dataclass
class _Log:
    """What was read of a log so far."""

    file: str
    rows: list[MetricRow] = field(default_factory=list)
    facts: dict[tuple[str, Scalar], Fact] = field(default_factory=dict)
    scores: list[Score] = field(default_factory=list)
    tracebacks: list[tuple[int, Line, int]] = field(default_factory=list)
    """Where it begins, its last line, and rows before it."""
    stage: int = 1
    stage_ended: bool = False
    bar: Bar | None = None
    in_traceback: int | None = None
    in_evaluation: bool = False
    """Whether what follows is of an evaluation: below its heading, up to the next row."""

    def source(self, line: Line) -> Source:
        return Source(file=self.file, line=line.number)

    def fact(self, name: str, value: Scalar, line: Line, **more: str) -> None:
        """Add a fact once, at its first place."""
        name = OF_EVALUATION.get(name, name) if self.in_evaluation else name
        fact = Fact(name=name, value=value, source=self.source(line), **more)  # type: ignore[arg-type]
        self.facts.setdefault((name, value), fact)

    def of_stage(self) -> list[MetricRow]:
        return [row for row in self.rows if row.stage == self.stage]


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
    log = _Log(file=file)
    for part in parts:
        if not part.is_form:
            _read_part(part, log)
    rows = with_sound_steps(log.rows)
    forms = [part for part in parts if part.is_form]
    problems = [*text.problems, *_form_problem(forms, where), *_traceback_problems(log, where)]
    gave = bool(rows or log.facts or log.scores or log.tracebacks)
    return FileReading(
        tool="console log" if gave or forms else None,
        encoding=text.encoding,
        template=bool(forms),
        facts=tuple(log.facts.values()),
        metrics=tuple(rows),
        scores=tuple(log.scores),
        problems=tuple(problems),
    )


def _first(part: Region) -> Line | None:
    return part.lines[0] if part.lines else None


def _read_part(part: Region, log: _Log) -> None:
    for line in part.lines:
        _note_traceback(line, log)
        _note_heading(line, log)
        if _STARTS in line.text and log.of_stage():
            log.stage_ended = True
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
            _note_words(line, log)
    _note_end(log)


def _note_bar(bar: Bar, line: Line, log: _Log) -> None:
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


def _add_dict(row: LineRow, line: Line, log: _Log) -> None:
    if row.is_summary:
        for name, fact in (("train_loss", "result.mean_loss"), ("train_runtime", "result.train_seconds")):
            value = row.values.get(name)
            if value is not None:
                more = {"note": MEAN_NOTE} if name == "train_loss" else {}
                log.fact(fact, value, line, **more)
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


def _add_words(row: LineRow, line: Line, log: _Log) -> None:
    if row.steps_planned is not None:
        note = "The number behind the step."
        log.fact("training.steps_planned", row.steps_planned, line, how="inferred", note=note)
    log.in_evaluation = False
    stage = _stage(row.values, log)
    if log.rows and log.rows[-1].stage == stage and log.rows[-1].values == row.values:
        return  # Printed twice, by the program and by its logger.
    log.rows.append(MetricRow(values=row.values, source=log.source(line), stage=stage))


def _stage(values: dict[str, float | None], log: _Log) -> int:
    """Return the stage of a row: a new one after the end of another, or where step or epoch go back."""
    if log.stage_ended or _goes_back(values, log):
        log.stage += 1 if log.of_stage() else 0
        log.stage_ended = False
    return log.stage


def _goes_back(values: dict[str, float | None], log: _Log) -> bool:
    if not log.rows or log.rows[-1].stage != log.stage:
        return False
    for name in ("step", "epoch"):
        now, before = values.get(name), log.rows[-1].values.get(name)
        if now is not None and before is not None and name not in log.rows[-1].inferred:
            return now < before
    return False


def _note_words(line: Line, log: _Log) -> None:
    """Take what a line says of model, data, devices, scores and the end of the run."""
    if score := score_of(line.text):
        name, value, note = score
        log.scores.append(Score(name=name, value=value, source=log.source(line), note=note))
    elif final := _FINAL.search(line.text):
        stated = _plain_number(final.group(2))
        if stated is not None:
            log.fact(f"result.{_LOSSES.get(final.group(1).lower(), 'best')}_loss", stated, line)
    elif fact := key_value(line.text):
        log.fact(fact[0], fact[1], line)
    _note_device(line, log)
    if found := _TRAINABLE.search(line.text):
        for name, text in zip(("model.trainable_parameters", "model.parameters"), found.groups(), strict=True):
            log.fact(name, int(text.replace(",", "")[:15] or 0), line)
    if _MEMORY.search(line.text):
        log.fact("failure.out_of_memory", line.text.strip()[:200], line)
    if _DONE.search(line.text):
        log.fact("run.status", "completed", line, note=f"The log says: {line.text.strip()[:80]}")
    elif _FAILED.search(line.text):
        log.fact("run.status", "failed", line, note=f"The log says: {line.text.strip()[:80]}")


def _note_device(line: Line, log: _Log) -> None:
    if found := _SMI.match(line.text):
        log.fact("device.gpu", found.group(1), line)
    found = _DEVICE.search(line.text)
    if found is None:
        return
    platform = _PLATFORM[(found.group(1) or found.group(2)).lower()]
    log.fact("device.platform", platform, line, how="inferred", note="The kind of device that JAX prints.")
    if listed := _DEVICE_LIST.search(line.text):
        count = listed.group(1).count("Device(")
        log.fact("device.count", count, line, how="inferred", note="Devices in the list that JAX prints.")


def _note_heading(line: Line, log: _Log) -> None:
    """Note whether the lines below a heading are of an evaluation, as `***** Running Evaluation *****` says."""
    heading = _HEADING.search(line.text)
    if heading is not None and _OF_TRAINING.search(heading.group(1)):
        log.in_evaluation = False
    elif heading is not None and is_of_evaluation(heading.group(1)):
        log.in_evaluation = True


def _note_traceback(line: Line, log: _Log) -> None:
    if "Traceback (most recent call last)" in line.text:
        log.in_traceback = line.number
    elif log.in_traceback is not None and _ERROR.match(line.text):
        log.tracebacks.append((log.in_traceback, line, len(log.rows)))
        log.in_traceback = None


def _note_end(log: _Log) -> None:
    """Keep the error that a log ends with: one that no row follows."""
    if log.tracebacks and log.tracebacks[-1][2] == len(log.rows):
        _, line, _ = log.tracebacks[-1]
        log.fact("failure.error", line.text.strip()[:200], line, note="No row follows this error.")


def _form_problem(forms: list[Region], where: str) -> list[Problem]:
    if not forms or forms[0].form is None:
        return []
    first = forms[0].form
    lines = sum(len(part.lines) for part in forms)
    opens = "The file is named as an example" if is_example_name(where) else f"{_quote(first.text)} opens an empty form"
    what = f"{opens}; not read: {counted(lines, 'line')}."
    return [problem_of(rules.UNFILLED, file=where, what=what, line=first.number)]


def _traceback_problems(log: _Log, where: str) -> list[Problem]:
    found = []
    for begins, line, before in log.tracebacks:
        after = len(log.rows) - before
        what = f"The log says {_quote(line.text)}; rows of metrics after it: {after}."
        found.append(problem_of(rules.TRACEBACK, file=where, what=what, line=begins))
    return list(first_few(found, limit=3))


def _quote(text: str) -> str:
    text = text.strip()
    return f"“{text[:60]}…”" if len(text) > 60 else f"“{text}”"


def _plain_number(text: str) -> float | None:
    number = number_of(text.rstrip(",;)"))
    return None if number is None else finite(number)
