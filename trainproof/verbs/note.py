"""The verb `note`."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from evidence.writing import as_json_text
from schemas.formats import NOTHING, join_lines
from trainproof.verbs.options import AsJson

if TYPE_CHECKING:
    from evidence.notes import Notes


def note(
    runs: Annotated[list[Path], typer.Argument(help="Run folders.")],
    tag: Annotated[list[str] | None, typer.Option(help="Tag to give, one word; may be given again.")] = None,
    untag: Annotated[list[str] | None, typer.Option(help="Tag to take away.")] = None,
    text: Annotated[str | None, typer.Option(help='The note; "" takes it away.')] = None,
    archive: Annotated[
        bool | None, typer.Option("--archive/--restore", help="Take the runs out of lists, or back into them.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Tag runs, write a note, archive or restore them; without options, show their notes. No grade depends on it."""
    from datetime import UTC, datetime

    from evidence.notes import NotesEdit, change_notes

    change = NotesEdit(add=tuple(tag or ()), remove=tuple(untag or ()), note=text, archive=archive)
    noted = dict(zip(runs, change_notes(runs, change, datetime.now(UTC)), strict=True))
    if as_json:
        sys.stdout.write(as_json_text([{"path": str(folder), **asdict(notes)} for folder, notes in noted.items()]))
    else:
        sys.stdout.writelines(_text(folder, notes) for folder, notes in noted.items())


def _text(folder: Path, notes: Notes) -> str:
    lines = notes.note.splitlines() or [NOTHING]
    rows = [
        f"  tags      {', '.join(notes.tags) or NOTHING}",
        f"  note      {lines[0]}",
        *(f"            {line}" for line in lines[1:]),
        f"  archived  {notes.archived_at or 'no'}",
    ]
    return join_lines([folder, *rows])
