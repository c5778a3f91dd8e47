"""A folder that another tool wrote, as one view: facts, metric rows, scores and answers, each with its source."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from foreign.readers.statement import Citation, Fact, How, Statement
from schemas.formats import join_words, quantity
from schemas.problems import Problem, problem_of
from schemas.reading import LARGEST_DOCUMENT, read_json

_PLACES = ("step", "epoch", "learning_rate")
_RESULTS = ("result.last_loss", "result.mean_loss", "result.best_loss", "result.first_loss", "result.loss")
_ABOUT_A_RUN = ("model.", "training.", "dataset.", "result.", "run.")


@dataclass(frozen=True, kw_only=True)
class MetricRow:
    """One row of measurements."""

    values: dict[str, float | None]
    """Name to number: `step`, `epoch`, `loss`, `learning_rate`, …; None: the source states NaN or infinity."""
    source: Citation
    """Where the row stands."""
    stage: int = 1
    """Which of the training runs in this file it belongs to, counted from 1."""
    inferred: tuple[str, ...] = ()
    """Names of values that the row does not state itself, for example a step taken from a progress bar."""


@dataclass(frozen=True, kw_only=True)
class ForeignScore:
    """One score of an evaluation."""

    name: str
    """Name as the source has it, in lower case with underscores."""
    value: float
    """Value as the source has it; a value with a percent sign as a fraction."""
    source: Citation
    """Where it stands."""
    checkpoint: str | None = None
    """Which checkpoint or step it is of. None: the source does not state it."""
    how: How = "stated"
    """Whether it is stated or inferred."""
    note: str | None = None
    """What must be known to read it. None: nothing."""


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """One answer of the model. None in any field: the source does not state it."""

    source: Citation
    """Where it stands."""
    id: str | None = None
    """Name of the item."""
    prompt: str | None = None
    """The question."""
    expected: str | None = None
    """The right answer."""
    output_text: str | None = None
    """What the model wrote."""
    extracted_answer: str | None = None
    """The answer found in it."""
    correct: bool | None = None
    """Whether the source counts it as right."""
    reasoning: str | None = None
    """The reasoning, where it stands apart from the answer."""


@dataclass(frozen=True, kw_only=True)
class FileReading:
    """What one file gave."""

    tool: str | None = None
    """What wrote it: `Hugging Face Trainer`, `console log`, … None: nothing was recognised."""
    encoding: str | None = None
    """Encoding of a text. None: not read as text."""
    template: bool = False
    """Whether the file is an example or a template, or holds places that were never filled in."""
    facts: tuple[Fact, ...] = ()
    """What it states."""
    metrics: tuple[MetricRow, ...] = ()
    """Rows, in the order of the file."""
    scores: tuple[ForeignScore, ...] = ()
    """Scores."""
    predictions: tuple[Prediction, ...] = ()
    """Answers."""
    statements: tuple[Statement, ...] = ()
    """What follows from it, remarks and recomputed scores: compared with others, and no figure of the run."""
    problems: tuple[Problem, ...] = ()
    """What is wrong with it, or must be known."""


@dataclass(frozen=True, kw_only=True)
class ForeignRun:
    """A folder of another tool, as it was read."""

    path: Path
    """The folder."""
    files: dict[str, FileReading] = field(default_factory=dict)
    """Every regular file by its path inside the folder, with what it gave."""
    problems: tuple[Problem, ...] = ()
    """What is wrong with the folder itself; those of files stand with them."""

    @property
    def tools(self) -> dict[str, list[str]]:
        """What was recognised: each tool with its files."""
        found: dict[str, list[str]] = {}
        for name, reading in self.files.items():
            if reading.tool:
                found.setdefault(reading.tool, []).append(name)
        return found

    @property
    def templates(self) -> list[str]:
        """Files that are examples or templates, or hold places that were never filled in."""
        return [name for name, reading in self.files.items() if reading.template]

    @property
    def facts(self) -> tuple[Fact, ...]:
        """Every fact, in the order of files."""
        return tuple(fact for reading in self.files.values() for fact in reading.facts)

    @property
    def metrics(self) -> tuple[MetricRow, ...]:
        """Every row, in the order of files."""
        return tuple(row for reading in self.files.values() for row in reading.metrics)

    @property
    def scores(self) -> tuple[ForeignScore, ...]:
        """Every score, in the order of files."""
        return tuple(score for reading in self.files.values() for score in reading.scores)

    @property
    def predictions(self) -> tuple[Prediction, ...]:
        """Every answer, in the order of files."""
        return tuple(one for reading in self.files.values() for one in reading.predictions)

    @property
    def is_measured(self) -> bool:
        """Whether any number or answer in the folder came from a model, as far as the folder states."""
        rows = any(
            value is not None for row in self.metrics for name, value in row.values.items() if name not in _PLACES
        )
        return rows or bool(self.scores or self.predictions or any(self.facts_named(name) for name in _RESULTS))

    @property
    def shows_a_run(self) -> bool:
        """Whether the folder shows that a program ran: a log of its own words, rows, or answers."""
        logs = any(reading.tool in ("console log", "MLPerf log") and reading.facts for reading in self.files.values())
        return logs or self.is_measured

    @property
    def looks_like_run(self) -> bool:
        """Whether the folder holds more than configurations and documents about something else."""
        if self.shows_a_run or self.templates or self.tools.keys() & {"TensorBoard", "MLflow", "Weights & Biases"}:
            return True
        return any(
            reading.tool != "configuration" and any(fact.name.startswith(_ABOUT_A_RUN) for fact in reading.facts)
            for reading in self.files.values()
        )

    def all_problems(self) -> Iterator[Problem]:
        """Yield the problems of reading: of the folder, then of each file."""
        yield from self.problems
        for reading in self.files.values():
            yield from reading.problems

    def facts_named(self, name: str) -> list[Fact]:
        """Return every fact of a name."""
        return [fact for fact in self.facts if fact.name == name]


def found_at(view: ForeignRun, source: Citation, code: str, what: str, *, expected: str | None = None) -> Problem:
    """Return the problem that a rule found where a source states something."""
    file = str(view.path / source.file)
    return problem_of(code, file=file, what=what, expected=expected, line=source.line, pointer=source.pointer)


_PARTS_OF_ONE = re.compile(
    r"rank|worker|process|proc|node|host|gpu|device|checkpoint|ckpt|step|epoch|eval", re.IGNORECASE
)
"""Names of folders that hold parts of one run."""

_A_RUN = 2
"""Files that a run has at least: what was requested, and what was measured."""


def other_runs(readings: Mapping[str, FileReading]) -> tuple[str, list[str]] | None:
    """Return the folder of the run that is read and those of the others; None where a folder holds one run.

    Two folders are runs of a sweep if they stand beside each other, hold files of the same names, and measured each a
    course of its own; nothing above them measured one.
    """
    inside: dict[str, dict[str, FileReading]] = defaultdict(dict)
    for name, reading in readings.items():
        if reading.tool is not None:
            folder = str(PurePosixPath(name).parent)
            inside[folder][PurePosixPath(name).name] = reading
    beside: dict[tuple[str, frozenset[str]], list[str]] = defaultdict(list)
    for folder, files in inside.items():
        place = PurePosixPath(folder)
        is_part = folder == "." or _PARTS_OF_ONE.search(place.name)
        if not is_part and len(files) >= _A_RUN and _measured_files(files) and len(_measured_files(files)) < len(files):
            beside[str(place.parent), frozenset(files)].append(folder)
    runs = max(beside.values(), key=len, default=[])
    elsewhere = any(_measured_files(files) for folder, files in inside.items() if folder not in runs)
    if len(runs) < _A_RUN or elsewhere:
        return None
    read = max(runs, key=lambda folder: (sum(len(one.metrics) for one in inside[folder].values()), folder))
    return read, sorted(folder for folder in runs if folder != read)


def _measured_files(files: Mapping[str, FileReading]) -> set[str]:
    return {name for name, reading in files.items() if reading.metrics}


_INDEX = (".safetensors.index.json", ".bin.index.json")
_NAMED = 3
"""Absent files that are named; further ones are counted."""


def absent_shards(folder: Path, names: Collection[str]) -> Iterator[Problem]:
    """Yield a problem for each index whose files are not all in the folder.

    Args:
        folder: The folder.
        names: The paths of its files.
    """
    for name in names:
        path = folder / name
        if not name.endswith(_INDEX):
            continue
        try:
            text = path.read_text("utf-8", "replace") if path.stat().st_size <= LARGEST_DOCUMENT else ""
        except OSError:
            continue  # That it cannot be read is reported elsewhere.
        value = read_json(text, file=str(path)).value
        weights = value.get("weight_map") if isinstance(value, dict) else None
        above = name.rpartition("/")[0]
        shards = sorted({one for one in weights.values() if isinstance(one, str)}) if isinstance(weights, dict) else []
        absent = [one for one in shards if (f"{above}/{one}" if above else one) not in names]
        if absent:
            more = [quantity(len(absent) - _NAMED, "other")] if len(absent) > _NAMED else []
            verb = "is" if len(absent) == 1 else "are"
            what = (
                f"{name} names {quantity(len(shards), 'file')} of weights; "
                f"{join_words([*absent[:_NAMED], *more], last='and')} {verb} not in the folder."
            )
            yield problem_of("TP530", file=str(path), what=what, pointer="/weight_map")
