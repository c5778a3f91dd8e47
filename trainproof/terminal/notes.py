"""The notes of runs in words: text for the terminal and values for programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from evidence.run.notes import Notes
from evidence.run.write import as_json_text
from schemas.problems.formats import NOTHING
from schemas.problems.visible import as_lines


def notes_text(noted: Mapping[Path, Notes]) -> str:
    """Return each run with its tags, its note and when it was archived; what cannot be seen is written as an escape."""
    return "".join(_text(folder, notes) for folder, notes in noted.items())


def notes_json(noted: Mapping[Path, Notes]) -> str:
    """Return a list of runs with the fields of their notes."""
    values = [{"path": str(folder), **asdict(notes)} for folder, notes in noted.items()]
    return as_json_text(values)


def _text(folder: Path, notes: Notes) -> str:
    lines = notes.note.splitlines() or [NOTHING]
    rows = [
        f"  tags      {', '.join(notes.tags) or NOTHING}",
        f"  note      {lines[0]}",
        *(f"            {line}" for line in lines[1:]),
        f"  archived  {notes.archived_at or 'no'}",
    ]
    return as_lines([folder, *rows])
