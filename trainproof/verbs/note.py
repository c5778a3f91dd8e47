"""The verb `note`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from trainproof.verbs.options import AsJson


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

    from evidence.run.notes import Change, change_notes
    from trainproof.terminal.notes import notes_json, notes_text

    change = Change(add=tuple(tag or ()), remove=tuple(untag or ()), note=text, archive=archive)
    noted = dict(zip(runs, change_notes(runs, change, datetime.now(UTC)), strict=True))
    sys.stdout.write(notes_json(noted) if as_json else notes_text(noted))
