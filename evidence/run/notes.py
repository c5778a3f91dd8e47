"""notes.json: tags, a note, and whether a run is archived. The words of anyone who looks at runs, never evidence.

No grade, no hash and no other file of the run depends on them, so a sealed run may be given a tag years later. A
writer takes the file as it is at that moment and replaces it whole: of two at the same time the last one wins, and
the file is never torn.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from evidence.run import layout
from evidence.run.unreadable import no_such_run
from evidence.run.write import write_json
from schemas.catalog import VERSION, schema
from schemas.formats import format_value
from schemas.problems import Problem, ProblemError, problem_of
from schemas.validate import read_document

LONGEST_NOTE = 10_000
"""Characters of a note that are taken; a longer text belongs in a file of its own."""


_TAG = re.compile(schema("notes")["properties"]["tags"]["items"]["pattern"])


@dataclass(frozen=True, kw_only=True)
class Notes:
    """What notes.json states of a run; without the file, nothing.

    Attributes:
        tags: Short words, each once.
        note: Any text, possibly of several lines; empty: none.
        archived_at: When the run was archived. None: it is not.
        changed_at: When the file was written last. None: it is missing.
    """

    tags: tuple[str, ...] = ()
    note: str = ""
    archived_at: str | None = None
    changed_at: str | None = None


@dataclass(frozen=True, kw_only=True)
class NotesEdit:
    """What is to be changed; the rest stays as it is.

    Attributes:
        add: Tags to give.
        remove: Tags to take away; one that the run does not have is not an error.
        note: The new note, empty for none. None: leave it.
        archive: True to archive, False to restore. None: leave it.
    """

    add: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
    note: str | None = None
    archive: bool | None = None


def read_notes(folder: Path) -> Notes:
    """Return the notes in a run folder.

    Raises:
        ProblemError: There is a notes.json that is not valid (exit code 1).
    """
    path = folder / layout.NOTES
    if not path.is_symlink() and not path.exists():
        return Notes()
    if path.is_symlink() or not path.is_file():
        raise ProblemError([_not_ours(path, "notes.json is a link or a folder, not a file.")])
    read = read_document(path, "notes")
    if read.problems or read.value is None:
        raise ProblemError([*read.problems, _not_ours(path, "notes.json cannot be read, so it was left as it is.")])
    return notes_in(read.value)


def change_notes(folders: Sequence[Path], change: NotesEdit, now: datetime) -> list[Notes]:
    """Change the notes of runs in one way and return them; what would not change is not written.

    Args:
        folders: The run folders.
        change: What to change.
        now: The time, with its offset.

    Raises:
        ProblemError: Nothing was changed: a tag or the note has not the right form, or there is no such folder (exit
            code 2); a notes.json that is there is not valid (exit code 1). Or one could not be written (exit code 1);
            it is as it was, and those before it are changed.
    """
    missing = [no_such_run(folder) for folder in folders if not folder.is_dir()]
    if problems := [*change_problems(change), *missing]:
        raise ProblemError(problems, exit_code=2)
    unsound: list[Problem] = []
    for folder in folders:
        try:
            read_notes(folder)
        except ProblemError as error:
            unsound += error.problems
    if unsound:
        raise ProblemError(unsound)
    return [_change(folder, change, now) for folder in folders]


def _change(folder: Path, change: NotesEdit, now: datetime) -> Notes:
    before = read_notes(folder)
    after = _apply(before, change, now)
    if after == before:
        return before
    after = replace(after, changed_at=now.isoformat(timespec="milliseconds"))
    try:
        write_json(folder / layout.NOTES, _as_document(after))
    except OSError as error:
        raise ProblemError([_cannot_write(folder / layout.NOTES, error)]) from error
    return after


def change_problems(change: NotesEdit) -> list[Problem]:
    """Return what is wrong with a change, whatever the runs are."""
    problems = [_bad_tag(tag) for tag in change.add if not _TAG.search(tag)]
    if change.note is not None and len(change.note) > LONGEST_NOTE:
        what = f"The note has {len(change.note):,} characters."
        then = "Shorten it, or keep it in a file next to the runs."
        expected = f"at most {LONGEST_NOTE:,} characters"
        problems.append(problem_of("TP097", file="", what=what, why=None, expected=expected, next=then))
    return problems


def tags_in(text: str) -> tuple[str, ...]:
    """Return the tags in a line of text, which spaces and commas part: `baseline, good` gives two."""
    return tuple(dict.fromkeys(part for part in re.split(r"[\s,]+", text) if part))


def _apply(notes: Notes, change: NotesEdit, now: datetime) -> Notes:
    tags = dict.fromkeys(tag for tag in (*notes.tags, *change.add) if tag not in change.remove)
    archived_at = notes.archived_at
    if change.archive is not None:
        archived_at = (notes.archived_at or now.isoformat(timespec="milliseconds")) if change.archive else None
    note = notes.note if change.note is None else _clean(change.note)
    return replace(notes, tags=tuple(tags), note=note, archived_at=archived_at)


def _clean(note: str) -> str:
    """Return a note as it is kept: one kind of line end, nothing at its ends, no half characters."""
    whole = note.encode("utf-8", "replace").decode("utf-8")
    return whole.replace("\r\n", "\n").replace("\r", "\n").strip()


def notes_in(value: dict[str, Any]) -> Notes:
    """Return the notes of a valid notes.json."""
    return Notes(
        tags=tuple(dict.fromkeys(value["tags"])),
        note=value["note"],
        archived_at=value["archived_at"],
        changed_at=value["changed_at"],
    )


def _as_document(notes: Notes) -> dict[str, Any]:
    return {
        "schema_version": VERSION,
        "tags": list(notes.tags),
        "note": notes.note,
        "archived_at": notes.archived_at,
        "changed_at": notes.changed_at,
    }


def _bad_tag(tag: str) -> Problem:
    expected = "one word of at most 40 characters, without spaces, quotation marks and any of , : ; < > = | \\ `"
    then = "Write it as one word, for example with a hyphen: first-try."
    return problem_of(
        "TP097", file="", what=f"{format_value(tag)} cannot be a tag.", why=None, expected=expected, next=then
    )


def _not_ours(path: Path, what: str) -> Problem:
    why = "To write over it would lose what is written there."
    then = "Correct it, or move it away; then change the notes again."
    return problem_of("TP098", file=str(path), what=what, why=why, next=then)


def _cannot_write(path: Path, error: OSError) -> Problem:
    what = f"notes.json cannot be written: {error.strerror or error}."
    then = "Check that the run folder can be written and that the disk has space."
    return problem_of("TP098", file=str(path), what=what, why="The notes are as they were.", next=then)
