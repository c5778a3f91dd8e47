"""Read and change notes.json: tags, a note, and whether a run is archived.

Notes are not evidence: no grade, hash or other file depends on them, so a sealed run can be tagged years later. The
file is replaced as a whole; of two writers the last one wins.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from evidence import layout
from evidence.writing import write_json
from schemas.catalog import VERSION, schema
from schemas.formats import format_value
from schemas.problems import Problem, ProblemError, collect_problems, problem_of
from schemas.validate import read_document

MAX_NOTE = 10_000  # characters
_TAG = re.compile(schema("notes")["properties"]["tags"]["items"]["pattern"])


@dataclass(frozen=True, kw_only=True)
class Notes:
    """Contents of notes.json, empty if the file is missing; `archived_at` is only set for archived runs."""

    tags: tuple[str, ...] = ()
    note: str = ""
    archived_at: str | None = None
    changed_at: str | None = None


@dataclass(frozen=True, kw_only=True)
class NotesEdit:
    """Changes of notes: tags, note, and whether to archive (True) or restore (False) the run. None keeps a value."""

    add: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
    note: str | None = None
    archive: bool | None = None


def read_notes(folder: Path) -> Notes:
    """Read the notes of a run folder; raise ProblemError if notes.json is not valid."""
    path = folder / layout.NOTES
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise ProblemError([_unchanged(path, "notes.json is a link or a folder, not a file.")])
    if not path.exists():
        return Notes()
    read = read_document(path, "notes")
    if read.problems or read.value is None:
        raise ProblemError([*read.problems, _unchanged(path, "notes.json is not valid.")])
    return parse_notes(read.value)


def parse_notes(value: dict[str, Any]) -> Notes:
    """Return the notes of a valid notes.json."""
    fields = {name: value[name] for name in ("note", "archived_at", "changed_at")}
    return Notes(tags=tuple(dict.fromkeys(value["tags"])), **fields)


def change_notes(folders: Sequence[Path], change: NotesEdit, now: datetime) -> list[Notes]:
    """Apply a change to the notes of runs at a time with UTC offset, and return them; equal notes are not written.

    Raises:
        ProblemError: Nothing was changed because a tag, the note or a folder is not valid (exit code 2) or a
            notes.json is not (exit code 1). Or one could not be written (exit code 1); those before it are changed.
    """
    missing = [layout.run_not_found(folder) for folder in folders if not folder.is_dir()]
    if problems := [*_change_problems(change), *missing]:
        raise ProblemError(problems, exit_code=2)
    before: list[Notes] = []
    broken: list[Problem] = []
    for folder in folders:
        with collect_problems(broken):
            before.append(read_notes(folder))
    if broken:
        raise ProblemError(broken)
    return [_change(folder, notes, change, now) for folder, notes in zip(folders, before, strict=True)]


def _change(folder: Path, before: Notes, change: NotesEdit, now: datetime) -> Notes:
    time = now.isoformat(timespec="milliseconds")
    note, archived_at = before.note, before.archived_at
    if change.note is not None:  # without lone surrogates and other line ends
        note = "\n".join(re.split("\r\n?|\n", change.note.encode("utf-8", "replace").decode())).strip()
    if change.archive is not None:
        archived_at = (archived_at or time) if change.archive else None
    tags = dict.fromkeys(tag for tag in (*before.tags, *change.add) if tag not in change.remove)
    after = replace(before, tags=tuple(tags), note=note, archived_at=archived_at)
    if after == before:
        return before
    after = replace(after, changed_at=time)
    path = folder / layout.NOTES
    try:
        write_json(path, {"schema_version": VERSION, **vars(after), "tags": list(after.tags)})
    except OSError as error:
        what = f"notes.json cannot be written: {error.strerror or error}."
        fix = "Check that the run folder can be written and that the disk has space."
        raise ProblemError([_unchanged(path, what, fix)]) from error
    return after


def split_tags(text: str) -> tuple[str, ...]:
    """Return the unique tags of a text separated by spaces or commas: `baseline, good` has two."""
    return tuple(dict.fromkeys(part for part in re.split(r"[\s,]+", text) if part))


def _change_problems(change: NotesEdit) -> list[Problem]:
    expected = "one word of at most 40 characters, without spaces, quotation marks and any of , : ; < > = | \\ `"
    fix = "Write it as one word, for example with a hyphen: first-try."
    wrong = [(f"{format_value(tag)} is not a valid tag.", expected, fix) for tag in change.add if not _TAG.search(tag)]
    if change.note is not None and len(change.note) > MAX_NOTE:
        what, expected = f"The note has {len(change.note):,} characters.", f"at most {MAX_NOTE:,} characters"
        wrong.append((what, expected, "Shorten it, or keep it in a file next to the runs."))
    return [problem_of("TP097", file="", what=what, why=None, expected=then, next=fix) for what, then, fix in wrong]


def _unchanged(path: Path, what: str, fix: str = "Correct it or move it away, then change the notes again.") -> Problem:
    return problem_of("TP098", file=str(path), what=what, why="The notes were not changed.", next=fix)
