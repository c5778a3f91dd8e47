"""What the files of another tool's run state: facts, metric rows, scores and predictions, each with its source."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from schemas.problems import Lines, Problem, key_path

Scalar = str | int | float | bool
How = Literal["stated", "inferred"]


class Tool:
    """Names of the tools that are recognised."""

    CONSOLE, TRAINER, TENSORBOARD = "console log", "Hugging Face Trainer", "TensorBoard"
    MLFLOW, WANDB, CONFIGURATION = "MLflow", "Weights & Biases", "configuration"


@dataclass(frozen=True, kw_only=True)
class Citation:
    """Place of a value: a path inside the folder, a line from 1, and a JSON Pointer or the step in an event file."""

    file: str
    line: int | None = None
    pointer: str | None = None

    @classmethod
    def at(cls, file: str, lines: Lines, pointer: str) -> Citation:
        """Return the place of a value in a document."""
        return cls(file=file, line=lines(pointer), pointer=pointer)

    def __str__(self) -> str:
        """Format the place for messages: `trainer_state.json at /max_steps (line 9)`, `train.log line 3`."""
        if self.pointer is None:
            return f"{self.file} line {self.line}" if self.line else self.file
        return f"{self.file} at {key_path(self.file, self.pointer)}" + (f" (line {self.line})" if self.line else "")


@dataclass(frozen=True, kw_only=True)
class Fact:
    """One statement about the run under our name (`model.name`), with an optional note on how to read it."""

    name: str
    value: Scalar
    source: Citation
    how: How = "stated"
    note: str | None = None


@dataclass(frozen=True, kw_only=True)
class MetricRow:
    """Measurements by our names, None for NaN and infinity; `stage` numbers the trainings of a file from 1."""

    values: dict[str, float | None]
    source: Citation
    stage: int = 1


@dataclass(frozen=True, kw_only=True)
class Score:
    """One score of an evaluation, `gsm8k.exact_match`; a value with a percent sign is a fraction."""

    name: str
    value: float
    source: Citation
    checkpoint: str | None = None
    how: How = "stated"
    note: str | None = None


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """One answer of the model; fields that are missing in the file are None."""

    source: Citation
    id: str | None = None
    prompt: str | None = None
    expected: str | None = None
    output_text: str | None = None
    extracted_answer: str | None = None
    correct: bool | None = None
    reasoning: str | None = None


@dataclass(kw_only=True)
class FileReading:
    """Contents of one file in its order; `tool` is None if it was not recognised.

    A `template` is an example or has unfilled placeholders. `needs_package` means that an optional package is missing.
    """

    tool: str | None = None
    encoding: str | None = None
    template: bool = False
    needs_package: bool = False
    facts: list[Fact] = field(default_factory=list)
    metrics: list[MetricRow] = field(default_factory=list)
    scores: list[Score] = field(default_factory=list)
    predictions: list[Prediction] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


def _of_all_files(name: str) -> cached_property[tuple[Any, ...]]:
    """Make a property with these contents of all files."""
    return cached_property(lambda run: tuple(one for reading in run.files.values() for one in getattr(reading, name)))


@dataclass(frozen=True, kw_only=True)
class ImportedRun:
    """Contents of another tool's folder: every regular file by its path, and findings about the folder itself."""

    path: Path
    files: dict[str, FileReading] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()

    facts = _of_all_files("facts")
    metrics = _of_all_files("metrics")
    scores = _of_all_files("scores")
    predictions = _of_all_files("predictions")

    @property
    def tools(self) -> dict[str, list[str]]:
        """Recognised tools with their files."""
        found: dict[str, list[str]] = {}
        for name, reading in self.files.items():
            if reading.tool:
                found.setdefault(reading.tool, []).append(name)
        return found

    @property
    def templates(self) -> list[str]:
        """Files that are examples or have placeholders."""
        return [name for name, reading in self.files.items() if reading.template]

    @property
    def is_measured(self) -> bool:
        """Whether any file holds a loss, a score, a prediction or another measured value."""
        measured = (
            row.values[name] for row in self.metrics for name in row.values.keys() - {"step", "epoch", "learning_rate"}
        )
        losses = (fact for fact in self.facts if fact.name.startswith("result.") and fact.name.endswith("loss"))
        return bool(self.scores or self.predictions) or any(value is not None for value in measured) or any(losses)

    @property
    def shows_a_run(self) -> bool:
        """Whether the folder shows that a program ran: console output, or anything measured."""
        return self.is_measured or any(one.tool == Tool.CONSOLE and one.facts for one in self.files.values())

    @property
    def looks_like_run(self) -> bool:
        """Whether the folder holds more than configurations and documents about something else."""
        if self.shows_a_run or self.templates or self.tools.keys() & {Tool.TENSORBOARD, Tool.MLFLOW, Tool.WANDB}:
            return True
        subjects = ("model.", "training.", "dataset.", "result.", "run.")
        documents = (reading for reading in self.files.values() if reading.tool != Tool.CONFIGURATION)
        return any(fact.name.startswith(subjects) for reading in documents for fact in reading.facts)

    def facts_named(self, name: str) -> list[Fact]:
        """Return every fact with this name."""
        return [fact for fact in self.facts if fact.name == name]

    def numbers(self, name: str) -> list[float]:
        """Return the values of every numeric fact with this name."""
        return [fact.value for fact in self.facts_named(name) if not isinstance(fact.value, str)]


def are_nested(one: str, two: str) -> bool:
    """Return whether one folder contains the other or equals it; sibling folders may hold different runs."""
    first, second = (f"{folder}/".removeprefix("/") for folder in (one, two))
    return first.startswith(second) or second.startswith(first)


Rows = list[MetricRow]


def loss_series(metrics: Sequence[MetricRow], name: str = "loss") -> dict[tuple[str, int], Rows]:
    """Group the rows that have this loss by file and stage.

    A training loss that is not finite counts, because a run may end in NaN; a null in a row of an evaluation does not.
    """
    series: dict[tuple[str, int], Rows] = defaultdict(list)
    for row in metrics:
        others = (value for key, value in row.values.items() if key != "loss" and "loss" in key)
        is_nan = name == "loss" and "loss" in row.values and all(value is None for value in others)
        if row.values.get(name) is not None or is_nan:
            series[row.source.file, row.stage].append(row)
    return series


def longest_course(metrics: Sequence[MetricRow]) -> Rows:
    """Return the longest series of losses, joined with the logs that precede and continue it."""
    parts = list(loss_series(metrics).values())
    course = max(parts, key=len, default=[])
    while later := next((rows for rows in parts if continues(course, rows)), None):
        course = _join(course, later)
    while earlier := next((rows for rows in parts if continues(rows, course)), None):
        course = _join(earlier, course)
    return course


def continues(one: Sequence[MetricRow], other: Sequence[MetricRow]) -> bool:
    """Return whether the second series resumes the first: it starts in its second half or later and ends after it."""
    first, second = _steps(one), _steps(other)
    if not first or not second:
        return False
    starts_anew = second[0] <= min((after - before for before, after in pairwise(second)), default=0.0)
    return not starts_anew and second[0] > (first[0] + first[-1]) / 2 and second[-1] > first[-1]


def _join(one: Rows, other: Rows) -> Rows:
    """Join two series; a resumed run repeats some steps of the first."""
    start = _steps(other)[0]
    return [*(row for row in one if (row.values.get("step") or 0) < start), *other]


def _steps(rows: Sequence[MetricRow]) -> list[float]:
    """Return the sorted steps of rows, or an empty list if a step is missing."""
    steps = [step for row in rows if (step := row.values.get("step")) is not None]
    return sorted(steps) if len(steps) == len(rows) else []
