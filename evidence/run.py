"""Read a run folder of unknown origin: `read_run` returns a `Run`, whatever the folder holds."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evidence import layout
from evidence.effective import PeakMemory
from evidence.imports.folder import read_tool_folder
from evidence.imports.run import ImportedRun
from evidence.layout import nested_too_deep, run_not_found
from evidence.lock import is_alive
from evidence.notes import Notes, parse_notes
from schemas.catalog import document_kind
from schemas.problems import Lines, Problem, ProblemError, problem_of
from schemas.reading import Array, Columns, Rows, get_str, read_rows
from schemas.validate import read_document

Document = dict[str, Any]

DOCUMENTS = {
    "manifest": layout.MANIFEST,
    "config": layout.CONFIG,
    "plan": layout.PLAN,
    "first_examples": layout.FIRST_EXAMPLES,
    "eval_summary": layout.EVAL_SUMMARY,
    "imported": layout.IMPORT,
    "session": layout.SESSION,
}
"""File of each document of a `Run`."""

ROW_FILES = tuple(name for name in layout.ROLES if name.endswith(".jsonl"))
TOLERANCE = 1e-9  # largest difference between a stated and a recomputed number, relative for numbers above 1
CLOCK_SECONDS = 2.0  # how far time services correct the system clock of a running machine


@dataclass(frozen=True, kw_only=True)
class ListedFigures:
    """The figures of a run of any tool that lists of runs show. None if missing, contradictory or withheld.

    Attributes:
        status: succeeded, failed, interrupted or running; None for runs of other tools.
        device: Kind and number of the devices, or the description of another tool.
        steps_done: Optimizer steps completed; of a running run, the step of the last row.
        tokens_seen: Training tokens, without padding if the rows record it.
        last_loss: Loss of the last row, or None if it is not finite.
        duration_seconds: Time from start to end, or else to the last row.
    """

    mode: str | None = None
    status: str | None = None
    model: str | None = None
    method: str | None = None
    device: str | None = None
    steps_done: int | None = None
    steps_planned: int | None = None
    tokens_seen: int | None = None
    last_loss: float | None = None
    duration_seconds: float | None = None
    peak_memory: PeakMemory | None = None
    started_at: str | None = None


@dataclass(frozen=True, kw_only=True)
class Figures(ListedFigures):
    """The main figures of a run. `losses` are the finite ones in order, `[rows]`, in nats per supervised token."""

    run_id: str | None = None
    dataset: str | None = None
    commit: str | None = None
    losses: Array = field(default_factory=lambda: np.array([]))
    first_loss: float | None = None
    best_loss: float | None = None
    mean_loss: float | None = None
    train_seconds: float | None = None


def _valid_rows(name: str) -> cached_property[Sequence[Document] | None]:
    """Make a property with the rows of a file, or None if the file is missing, invalid or withheld."""

    def load(run: Run) -> Sequence[Document] | None:
        if name not in run.files or name in run.withheld:
            return None
        read = run.rows(name)
        return None if any(problem.severity == "error" for problem in read.problems) else read.values

    return cached_property(load)


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run folder, valid or not.

    A document or file of rows is None if it is missing or invalid; `problems` and `rows` explain why. Rules and pages
    can therefore use every value without checking its type. `raw` and `rows` also give the readable parts of an invalid
    file. Rows exclude a torn last line.

    Attributes:
        files: Every regular file except weights, as sorted paths with forward slashes.
        notes: notes.json, or empty notes if it is missing or invalid.
        alive: Whether a process holds the folder now.
        problems: Problems of the folder and its documents. Problems of rows are reported when they are read.
        withheld: Files of rows that must not be shown because they contain errors.
    """

    folder: Path
    files: tuple[str, ...]
    manifest: Document | None = None
    config: Document | None = None
    plan: Document | None = None
    first_examples: Document | None = None
    eval_summary: Document | None = None
    imported: Document | None = None
    session: Document | None = None
    notes: Notes
    alive: bool
    problems: tuple[Problem, ...]
    withheld: frozenset[str] = frozenset()
    _raw: Mapping[str, Document] = field(default_factory=dict, repr=False, compare=False)
    _lines: dict[str, Lines] = field(default_factory=dict, repr=False, compare=False)
    _rows: dict[str, Rows] = field(default_factory=dict, repr=False, compare=False)

    metrics = _valid_rows(layout.METRICS)
    log = _valid_rows(layout.LOG)
    chain = _valid_rows(layout.CHAIN)
    rollouts = _valid_rows(layout.ROLLOUTS)
    answers_over_steps = _valid_rows(layout.ANSWERS_OVER_STEPS)
    predictions = _valid_rows(layout.PREDICTIONS)
    baseline_predictions = _valid_rows(layout.BASELINE_PREDICTIONS)

    @property
    def path(self) -> Path:
        """The run folder."""
        return self.folder

    @property
    def status(self) -> str | None:
        """The status in the manifest, or None if it is missing.

        `interrupted` if the manifest says `running` or is missing next to a lock file, but the folder is not locked.
        """
        status = self.raw(layout.MANIFEST).get("status")
        unwritten = layout.MANIFEST not in self._raw and layout.LOCK in self.files
        if (status == "running" or unwritten) and not self.alive:
            return "interrupted"
        return status if isinstance(status, str) else None

    @property
    def is_run(self) -> bool:
        """Whether anything in the folder has the name of a file that only a run writes."""
        return layout.holds_run([*self.files, *(Path(problem.file).name for problem in self.problems)])

    @property
    def is_import(self) -> bool:
        """Whether the folder was imported from another tool: it has import.json instead of a manifest."""
        return layout.IMPORT in self.files and layout.MANIFEST not in self.files

    @property
    def originals(self) -> dict[str, str]:
        """Hash of each original file of a valid import by path; empty for other runs."""
        is_valid = self.is_import and not any(problem.severity == "error" for problem in self.problems)
        originals = self.imported["originals"] if is_valid and self.imported else []
        return {original["path"]: original["sha256"] for original in originals}

    @property
    def is_ours(self) -> bool:
        """Whether trainproof wrote any of the files: a document with a schema version, or valid rows."""
        if layout.IMPORT in self.files:
            return True
        named = (layout.MANIFEST, layout.PLAN, layout.FIRST_EXAMPLES, layout.EVAL_SUMMARY)
        return any("schema_version" in self.raw(name) for name in named) or any(
            self.rows(name).values for name in ROW_FILES
        )

    @property
    def model(self) -> Document | None:
        """The manifest's `model`, or None before the model is built."""
        return self.manifest["model"] if self.manifest is not None else None

    @property
    def training(self) -> Document | None:
        """The manifest's `training`, or None before the train step is compiled."""
        return self.manifest["training"] if self.manifest is not None else None

    @property
    def trains_all(self) -> bool:
        """Whether every parameter of the model is trained."""
        return self.training is not None and self.training["method"] == "full"

    @property
    def draws_completions(self) -> bool:
        """Whether the model was trained on completions that it sampled itself."""
        return get_str(self.config, "objective", "kind") == "grpo"

    @property
    def is_sealed(self) -> bool:
        """Whether the run recorded its end; before that, results and hashes are not expected."""
        return self.manifest is not None and self.manifest["status"] != "running"

    @property
    def succeeded(self) -> bool:
        """Whether the manifest says that the run succeeded."""
        return self.manifest is not None and self.manifest["status"] == "succeeded"

    @cached_property
    def columns(self) -> Columns:
        """The metrics as arrays, empty without valid rows."""
        return Columns(self.metrics or [])

    def raw(self, name: str) -> Document:
        """Return a document as it was read, valid or not; empty if it is missing or not an object."""
        return self._raw.get(name, {})

    def rows(self, name: str) -> Rows:
        """Return the rows of a JSONL file and their problems, read once; no rows if the file is missing."""
        if name not in self.files:
            return Rows(values=[], problems=(), torn_tail=False, bytes_read=0)
        if name not in self._rows:
            self._rows[name] = read_rows(self.folder / name, document_kind(name) or "")
        return self._rows[name]

    def row_problems(self) -> list[Problem]:
        """Return the problems of all files of rows."""
        return [problem for name in ROW_FILES for problem in self.rows(name).problems]

    def foreign(self) -> ImportedRun | None:
        """Return what the files of another tool contain, or None if trainproof wrote the run."""
        return self._foreign

    @cached_property
    def _foreign(self) -> ImportedRun | None:
        if self.is_import:
            return read_tool_folder(self.folder / layout.ORIGINAL)
        if self.alive or self.is_ours:
            return None
        view = read_tool_folder(self.folder)
        return view if view.looks_like_run else None

    def with_line(self, problem: Problem) -> Problem:
        """Return the problem with the line of the value at its pointer, if that is known."""
        if problem.line is not None or not problem.pointer or problem.file not in self._lines:
            return problem
        return replace(problem, line=self._lines[problem.file](problem.pointer))


def read_run(folder: Path) -> Run:
    """Read a run folder. Never raises, whatever the folder holds, even if it is missing or cannot be read."""
    folder = Path(folder)
    problems: list[Problem] = []
    files = _list_files(folder, problems)
    raw: dict[str, Document] = {}
    lines: dict[str, Lines] = {}
    for name in DOCUMENTS.values():
        if name in files:
            read = read_document(folder / name, document_kind(name) or "")
            problems.extend(read.problems)
            lines[str(folder / name)] = read.lines
            if read.value is not None:
                raw[name] = read.value
    notes = Notes()
    if layout.NOTES in files:
        read = read_document(folder / layout.NOTES, "notes")
        notes = parse_notes(read.value) if read.value is not None and not read.problems else notes
        # As warnings: notes are not evidence and must not change a grade.
        problems.extend(replace(problem, severity="warning") for problem in read.problems)
    broken = {problem.file for problem in problems if problem.severity == "error"}
    valid: dict[str, Any] = {key: raw.get(n) for key, n in DOCUMENTS.items() if str(folder / n) not in broken}
    return Run(
        folder=folder,
        files=files,
        **valid,
        notes=notes,
        alive=is_alive(folder),
        problems=tuple(problems),
        _raw=raw,
        _lines=lines,
    )


def read_existing_run(folder: Path) -> Run:
    """Read a run folder that a user named; raise ProblemError (exit code 2) if it does not exist."""
    if not Path(folder).is_dir():
        raise ProblemError([run_not_found(Path(folder))], exit_code=2)
    return read_run(folder)


def _list_files(folder: Path, problems: list[Problem]) -> tuple[str, ...]:
    """Return the regular files below a folder; a link or special file under an evidence name is a problem."""
    known = {layout.MANIFEST, layout.IMPORT, layout.NOTES, layout.STAMPS, layout.SESSION, *layout.ROLES}
    found = []
    for name, entry in _walk(folder, problems):
        if entry.is_file(follow_symlinks=False):
            found.append(name)
        elif name in known:
            kind = "symbolic link" if entry.is_symlink() else "folder" if entry.is_dir() else "special file"
            what = f"{name} is a {kind}, not a file; it was not read."
            problems.append(problem_of("TP206", file=str(folder / name), what=what))
    return tuple(sorted(found))


def _walk(folder: Path, problems: list[Problem], prefix: str = "") -> Iterator[tuple[str, os.DirEntry[str]]]:
    if prefix.count("/") > layout.DEEPEST:
        problems.append(nested_too_deep(folder))
        return
    try:
        with os.scandir(folder) as listing:
            entries = sorted(listing, key=lambda entry: entry.name)
    except OSError as error:
        what = f"The folder cannot be read: {error.strerror or error}."
        problems.append(problem_of("TP209", file=str(folder), what=what))
        return
    for entry in entries:
        name = prefix + entry.name
        yield name, entry
        if entry.is_dir(follow_symlinks=False) and entry.name[0] != "." and name not in layout.WEIGHT_FOLDERS:
            yield from _walk(folder / entry.name, problems, f"{name}/")


def finding(folder: Path, code: str, name: str, what: str, **more: Any) -> Problem:
    """Return the problem of a file in a run folder, or of the folder itself if the name is empty."""
    return problem_of(code, file=str(folder / name), what=what, **more)


def same(one: Any, other: Any) -> bool:
    """Return whether two values are equal: integers exactly, other numbers within `TOLERANCE`."""
    if type(one) is int and type(other) is int:
        return one == other
    if isinstance(one, int | float) and isinstance(other, int | float) and bool not in (type(one), type(other)):
        return bool(abs(one - other) <= TOLERANCE * max(1.0, abs(one), abs(other)))
    return type(one) is type(other) and bool(one == other)


def where(flags: NDArray[np.bool_]) -> list[int]:
    """Return the indices at which a `[rows]` array of flags is true."""
    return np.flatnonzero(flags).tolist() if flags.any() else []


def clock_set_back_seconds(run: Run) -> float:
    """Return by how much the system clock was set back during a run, in seconds.

    Since version 1.2 rows contain a monotonic clock. In older runs the durations of the steps replace it, if the time
    of day jumps back before the last row.
    """
    seconds, clock = run.columns["seconds"], run.columns["clock_seconds"]
    if not np.isfinite(clock).any():
        if not (np.diff(seconds)[:-1] < -CLOCK_SECONDS).any():
            return 0.0
        clock = np.cumsum(run.columns["step_seconds"] * np.diff(run.columns["step"], prepend=0.0))
    ahead = (seconds - clock)[np.isfinite(seconds - clock)]
    return max(0.0, float(ahead[0] - ahead[-1])) if len(ahead) else 0.0
