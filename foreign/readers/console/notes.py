"""Single lines of a log beside its rows: settings (Unsloth draws several in one), devices, scores, errors, the end."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from foreign.readers.console.lines import Bar
from foreign.readers.keys import OF_EVALUATION, is_of_evaluation, is_of_no_use
from foreign.readers.settings import echoed_command, key_value, namespace_of, score_of, settings_of
from foreign.readers.statement import Citation, Fact, Scalar, Statement
from foreign.readers.text import LogLine, finite, number_of
from foreign.readers.training_tools import (
    MARK,
    MLPERF,
    epoch_of,
    event_of,
    facts_of,
    figures_of_line,
    row_of,
    score_of_event,
)
from foreign.readers.view import ForeignScore, MetricRow

_SLOTH = re.compile(r"""^\s*(?:==\(\(=+\)\)==|\\\\\s*/\||O\^O/\s*\\_/\s*\\|\\\s+/|"-_+-")\s+""")
_BETWEEN = re.compile(r"\s+\|\s+|\.\s+(?=[A-Z])")
_SETTING = re.compile(r"^[A-Za-z][\w /-]{1,40}(?:\([^)]*\))?\s*[:=]\s*\S")
_TRAINED = re.compile(r"Trainable parameters\s*=\s*([\d,]+)\s*(?:/|of)\s*([\d,]+)")

_ORDERLY = 2
"""Settings from which on a line is taken for several."""


def pieces_of(text: str) -> list[str]:
    """Return the settings of a line that holds several, else the line itself.

    Example:
        >>> pieces_of("Num examples = 1,000 | Num Epochs = 1 | Total steps = 60")
        ['Num examples = 1,000', 'Num Epochs = 1', 'Total steps = 60']
        >>> pieces_of("Step 10 | loss: 2.5")
        ['Step 10 | loss: 2.5']
    """
    drawn = _SLOTH.match(text)
    bare = text[drawn.end() :] if drawn else text
    parts = [part.strip(" .") for part in _BETWEEN.split(bare)]
    settings = [part for part in parts if _SETTING.match(part)]
    if len(settings) >= _ORDERLY and (drawn or len(settings) == len(parts)):
        return settings
    return [bare]


def trained_of(text: str) -> tuple[int, int] | None:
    """Return trainable and all parameters as Unsloth states them; None where a line does not."""
    found = _TRAINED.search(text)
    if found is None:
        return None
    trained, everything = (int(number.replace(",", "")[:15] or 0) for number in found.groups())
    return trained, everything


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


@dataclass
class ConsoleLog:
    """What was read of a log so far."""

    file: str
    tool: str = "console log"
    rows: list[MetricRow] = field(default_factory=list)
    facts: dict[tuple[str, Scalar], Fact] = field(default_factory=dict)
    scores: list[ForeignScore] = field(default_factory=list)
    tracebacks: list[tuple[int, LogLine, int]] = field(default_factory=list)
    """Where it begins, its last line, and rows before it."""
    stage: int = 1
    stage_ended: bool = False
    bar: Bar | None = None
    in_traceback: int | None = None
    epoch: int | None = None
    """The epoch that Keras began last."""
    statements: list[Statement] = field(default_factory=list)
    """What figures of one line give for another one."""
    in_evaluation: bool = False
    """Whether what follows is of an evaluation: below its heading, up to the next row."""

    def source(self, line: LogLine) -> Citation:
        """Return a line as a source."""
        return Citation(file=self.file, line=line.number)

    def fact(self, name: str, value: Scalar, line: LogLine, **more: str) -> None:
        """Add a fact once, at its first place."""
        name = OF_EVALUATION.get(name, name) if self.in_evaluation else name
        name = "device.remark" if is_of_no_use(name, value) else name
        fact = Fact(name=name, value=value, source=self.source(line), **more)  # type: ignore[arg-type]
        self.facts.setdefault((name, value), fact)

    def of_stage(self) -> list[MetricRow]:
        """Return the rows of the present stage."""
        return [row for row in self.rows if row.stage == self.stage]


def note_words(line: LogLine, log: ConsoleLog) -> None:
    """Take what a line states of model, data, devices, scores and the end of the run."""
    if score := score_of(line.text):
        name, value, note = score
        log.scores.append(ForeignScore(name=name, value=value, source=log.source(line), note=note))
    elif final := _FINAL.search(line.text):
        stated = _plain_number(final.group(2))
        if stated is not None:
            log.fact(f"result.{_LOSSES.get(final.group(1).lower(), 'best')}_loss", stated, line)
    else:
        for piece in pieces_of(line.text):
            if fact := key_value(piece):
                log.fact(fact[0], fact[1], line)
    printed = namespace_of(line.text) if "Namespace(" in line.text else echoed_command(line.text)
    for name, given, key in settings_of(printed) if printed else ():
        source = replace(log.source(line), pointer=f"/{key}")
        log.facts.setdefault((name, given), Fact(name=name, value=given, source=source))
    _note_device(line, log)
    _note_parameters(line, log)
    if _MEMORY.search(line.text):
        log.fact("failure.out_of_memory", line.text.strip()[:200], line)
    if _DONE.search(line.text):
        log.fact("run.status", "completed", line, note=f"The log says: {line.text.strip()[:80]}")
    elif _FAILED.search(line.text):
        log.fact("run.status", "failed", line, note=f"The log says: {line.text.strip()[:80]}")


def _note_parameters(line: LogLine, log: ConsoleLog) -> None:
    """Take trainable and all parameters, as PEFT and Unsloth print them."""
    found = _TRAINABLE.search(line.text)
    counts = [int(text.replace(",", "")[:15] or 0) for text in found.groups()] if found else trained_of(line.text)
    for name, number in zip(("model.trainable_parameters", "model.parameters"), counts or (), strict=False):
        log.fact(name, number, line)


def _note_device(line: LogLine, log: ConsoleLog) -> None:
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


def note_heading(line: LogLine, log: ConsoleLog) -> None:
    """Note whether the lines below a heading are of an evaluation, as `***** Running Evaluation *****` states."""
    heading = _HEADING.search(line.text)
    if heading is not None and _OF_TRAINING.search(heading.group(1)):
        log.in_evaluation = False
    elif heading is not None and is_of_evaluation(heading.group(1)):
        log.in_evaluation = True


def note_traceback(line: LogLine, log: ConsoleLog) -> None:
    """Note where a traceback begins and ends."""
    if "Traceback (most recent call last)" in line.text:
        log.in_traceback = line.number
    elif log.in_traceback is not None and _ERROR.match(line.text):
        log.tracebacks.append((log.in_traceback, line, len(log.rows)))
        log.in_traceback = None


def note_end(log: ConsoleLog) -> None:
    """Keep the error that a log ends with: one that no row follows."""
    if log.tracebacks and log.tracebacks[-1][2] == len(log.rows):
        _, line, _ = log.tracebacks[-1]
        log.fact("failure.error", line.text.strip()[:200], line, note="No row follows this error.")


def note_other_forms(line: LogLine, log: ConsoleLog) -> bool:
    """Take a line of MLPerf's log, or of Keras' progress bar; return whether it was one."""
    if MARK in line.text and (event := event_of(line)) is not None:
        source, log.tool = log.source(line), MLPERF
        for fact in facts_of(event, source):
            log.facts.setdefault((fact.name, fact.value), fact)
        if (row := row_of(event, source)) is not None:
            log.rows.append(row)
        if (score := score_of_event(event, source)) is not None:
            log.scores.append(score)
        return True
    if (epoch := epoch_of(line.text)) is not None:
        log.epoch = epoch[0]
        log.fact("training.epochs_planned", epoch[1], line)
        return True
    figures = figures_of_line(line.text) if log.epoch is not None else {}
    if figures:
        log.rows.append(MetricRow(values={"epoch": log.epoch, **figures}, source=log.source(line), stage=log.stage))
    return bool(figures)


def _plain_number(text: str) -> float | None:
    number = number_of(text.rstrip(",;)"))
    return None if number is None else finite(number)


def quote(text: str) -> str:
    """Return the beginning of a line in quotation marks."""
    text = text.strip()
    return f"“{text[:60]}…”" if len(text) > 60 else f"“{text}”"
