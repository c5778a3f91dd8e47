"""Reading a run folder of unknown origin: `read_run` gives a `Run`, whatever the folder holds."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import Any

from evidence.records.foreign_run import read_foreign
from evidence.run import layout
from evidence.run.lock import is_alive
from evidence.run.notes import Notes, notes_in
from evidence.run.unreadable import no_such_run, too_deep
from foreign.readers.view import ForeignRun
from schemas.catalog import kind_of
from schemas.problems import Lines, Problem, ProblemError, problem_of
from schemas.reading import Rows, read_rows
from schemas.validate import read_document


class AnyCase(type(Path())):  # type: ignore[misc]
    """A folder in which a name finds its file by other letters too, if no file has it as it is written."""

    def __truediv__(self, name: str | os.PathLike[str]) -> Path:
        """Return the path of a file below: `folder / "plan.json"` is that of `PLAN.JSON` where only this is there."""
        found = Path(self)
        for part in PurePath(name).parts:
            found = found / (part if os.path.lexists(found / part) else _other(found, part))
        return AnyCase(found)


def _other(folder: Path, name: str) -> str:
    """Return the name in a folder that is the same but for its letters, or the name itself if no file matches."""
    names = sorted(each.name for each in folder.iterdir()) if folder.is_dir() else []
    return next((each for each in names if each.lower() == name.lower()), name)


ROW_FILES = (
    layout.METRICS,
    layout.LOG,
    layout.SYSTEM,
    layout.CHAIN,
    layout.ROLLOUTS,
    layout.ANSWERS_OVER_STEPS,
    layout.PREDICTIONS,
    layout.BASELINE_PREDICTIONS,
)

NO_ROWS = Rows(values=[], problems=(), torn_tail=False, bytes_read=0)


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run folder as it was found.

    Attributes:
        path: The folder, as the caller named it.
        files: Every regular file in it, weights left out, as sorted paths with forward slashes.
        manifest: The value of run_manifest.json, valid or not. None: absent or not an object. So for the others.
        config: config.yaml.
        plan: plan.json.
        first_examples: first_examples.json.
        eval_summary: eval_summary.json.
        imported: import.json.
        notes: notes.json; nothing where the file has a problem.
        alive: Whether some process holds the folder now.
        problems: What is wrong with the folder, these documents and their shapes; rows report theirs when they are
            read.
    """

    path: Path
    files: tuple[str, ...]
    manifest: dict[str, Any] | None
    config: dict[str, Any] | None
    plan: dict[str, Any] | None
    first_examples: dict[str, Any] | None
    eval_summary: dict[str, Any] | None
    imported: dict[str, Any] | None
    notes: Notes
    alive: bool
    problems: tuple[Problem, ...]
    _lines: dict[str, Lines] = field(default_factory=dict, repr=False, compare=False)
    _rows: dict[str, Rows] = field(default_factory=dict, repr=False, compare=False)
    _views: list[ForeignRun | None] = field(default_factory=list, repr=False, compare=False)

    @property
    def status(self) -> str | None:
        """The manifest's status; a run that states `running` while no process holds its folder is `interrupted`.

        So is one that left a lock and no manifest: it was killed before it wrote any. None: no status is stated.
        """
        status = (self.manifest or {}).get("status")
        unwritten = self.manifest is None and layout.LOCK in self.files
        if (status == "running" or unwritten) and not self.alive:
            return "interrupted"
        return status if isinstance(status, str) else None

    @property
    def is_run(self) -> bool:
        """Whether the folder holds a file, or anything under the name of a file, that only a run writes."""
        return layout.holds_run([*self.files, *(Path(problem.file).name for problem in self.problems)])

    @property
    def is_import(self) -> bool:
        """Whether the folder was imported from another tool: it has import.json in place of a manifest."""
        return layout.IMPORT in self.files and layout.MANIFEST not in self.files

    @property
    def originals(self) -> dict[str, str]:
        """The hash of each original of an import by its path; empty for other runs and where import.json is invalid."""
        is_sound = self.is_import and not any(problem.severity == "error" for problem in self.problems)
        originals = self.imported["originals"] if is_sound and self.imported else []
        return {original["path"]: original["sha256"] for original in originals}

    @property
    def is_ours(self) -> bool:
        """Whether trainproof wrote any of it: a document that names its schema, or rows of the right shape."""
        documents = (self.manifest, self.plan, self.first_examples, self.eval_summary, self.imported)
        if layout.IMPORT in self.files or any(document and "schema_version" in document for document in documents):
            return True
        return any(self.rows(name).values for name in ROW_FILES)

    def foreign(self) -> ForeignRun | None:
        """Return what another tool's folder, or the originals of an import, state; None for a run of trainproof."""
        if not self._views:
            self._views.append(self._read_foreign())
        return self._views[0]

    def _read_foreign(self) -> ForeignRun | None:
        if self.is_import:
            return read_foreign(self.path / layout.ORIGINAL)
        if self.alive or self.is_ours:
            return None
        view = read_foreign(self.path)
        return view if view.looks_like_run else None

    def metrics(self) -> Rows:
        """Return the rows of metrics.jsonl, read once; none where there is no such file."""
        return self.rows(layout.METRICS)

    def log(self) -> Rows:
        """Return the rows of log.jsonl."""
        return self.rows(layout.LOG)

    def chain(self) -> Rows:
        """Return the rows of chain.jsonl."""
        return self.rows(layout.CHAIN)

    def predictions(self) -> Rows:
        """Return the rows of predictions.jsonl."""
        return self.rows(layout.PREDICTIONS)

    def baseline_predictions(self) -> Rows:
        """Return the rows of baseline_predictions.jsonl."""
        return self.rows(layout.BASELINE_PREDICTIONS)

    def row_problems(self) -> list[Problem]:
        """Return what is wrong with the rows of all its files, reading those that were not read yet."""
        return [problem for name in ROW_FILES for problem in self.rows(name).problems]

    def with_line(self, problem: Problem) -> Problem:
        """Return the problem with the line of the value it points to, where that is known."""
        if problem.line is not None or not problem.pointer or problem.file not in self._lines:
            return problem
        return replace(problem, line=self._lines[problem.file](problem.pointer))

    def with_line_of_row(self, problem: Problem) -> Problem:
        """Return a rule's finding, whose line counts rows, with the line of the file where that row stands."""
        name = Path(problem.file).name
        if problem.line is None or name not in ROW_FILES:
            return problem
        return replace(problem, line=self.rows(name).line_of(problem.line - 1))

    def rows(self, name: str) -> Rows:
        """Return the rows of one of the run's JSONL files by its name."""
        if name not in self.files:
            return NO_ROWS
        if name not in self._rows:
            self._rows[name] = read_rows(self.path / name, kind_of(name) or "")
        return self._rows[name]


def read_run(folder: Path) -> Run:
    """Read a run folder; never raises on what it holds, nor on a folder that is missing or cannot be read."""
    folder = Path(folder)
    problems: list[Problem] = []
    lines: dict[str, Lines] = {}
    files = _files(folder, problems)
    if any(problem.code == "TP214" for problem in problems):
        folder, files = AnyCase(folder), tuple(sorted({name.lower() for name in files}))

    def document(name: str) -> dict[str, Any] | None:
        if name not in files:
            return None
        read = read_document(folder / name, kind_of(name) or "")
        problems.extend(read.problems)
        lines[str(folder / name)] = read.lines
        return read.value

    notes, remarks = _notes(folder / layout.NOTES) if layout.NOTES in files else (Notes(), [])
    return Run(
        path=folder,
        files=files,
        manifest=document(layout.MANIFEST),
        config=document(layout.CONFIG),
        plan=document(layout.PLAN),
        first_examples=document(layout.FIRST_EXAMPLES),
        eval_summary=document(layout.EVAL_SUMMARY),
        imported=document(layout.IMPORT),
        notes=notes,
        alive=is_alive(folder),
        problems=(*problems, *remarks),
        _lines=lines,
    )


def read_existing_run(folder: Path) -> Run:
    """Read a run folder that a user named.

    Raises:
        ProblemError: There is no such folder (exit code 2).
    """
    if not Path(folder).is_dir():
        raise ProblemError([no_such_run(Path(folder))], exit_code=2)
    return read_run(folder)


def _notes(path: Path) -> tuple[Notes, list[Problem]]:
    """Return the notes and their problems as warnings: those words are not evidence, so no grade suffers from them."""
    read = read_document(path, "notes")
    remarks = [replace(problem, severity="warning") for problem in read.problems]
    return notes_in(read.value) if read.value is not None and not remarks else Notes(), remarks


def _files(folder: Path, problems: list[Problem]) -> tuple[str, ...]:
    """Return the regular files below a folder; a link or a special file under an evidence name is a problem."""
    known = {layout.MANIFEST, layout.IMPORT, layout.NOTES, layout.STAMPS, *layout.ROLES}
    found = []
    for name, entry in _entries(folder, problems):
        if entry.is_file(follow_symlinks=False):
            found.append(name)
        elif name in known:
            problems.append(
                problem_of(
                    "TP206",
                    file=str(folder / name),
                    what=f"{name} is a {_kind(entry)}, not a file; it was not read.",
                )
            )
    others = [name for name in found if name not in known and name.lower() in known - set(found)]
    if layout.MANIFEST in map(str.lower, others):
        what = (
            f"{len(others)} files have names of a run in other letters, such as {others[0]}; they were read as those."
        )
        problems.append(problem_of("TP214", file=str(folder), what=what))
    return tuple(sorted(found))


def _entries(folder: Path, problems: list[Problem], prefix: str = "") -> Iterator[tuple[str, os.DirEntry[str]]]:
    if prefix.count("/") > layout.DEEPEST:
        problems.append(too_deep(folder))
        return
    try:
        with os.scandir(folder) as listing:
            entries = sorted(listing, key=lambda entry: entry.name)
    except OSError as error:
        problems.append(
            problem_of("TP209", file=str(folder), what=f"The folder cannot be read: {error.strerror or error}.")
        )
        return
    for entry in entries:
        name = prefix + entry.name
        yield name, entry
        if entry.is_dir(follow_symlinks=False) and not entry.name.startswith(".") and name not in layout.WEIGHT_FOLDERS:
            yield from _entries(folder / entry.name, problems, f"{name}/")


def _kind(entry: os.DirEntry[str]) -> str:
    if entry.is_symlink():
        return "symbolic link"
    return "folder" if entry.is_dir() else "special file"
