"""Tags and a note for the chosen runs. What a user writes here is shown as text and never interpreted."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import streamlit as st

from dashboard.shared.parts import markup, problems
from dashboard.shared.session import reading
from dashboard.shared.tables.run_rows import Row
from evidence.notes import LONGEST_NOTE, NotesEdit, change_notes, split_tags
from schemas.formats import quantity
from schemas.problems import ProblemError


@st.dialog("Tags and note", width="medium")
def edit(rows: Sequence[Row]) -> None:
    """Draw the form; saving writes notes.json of each run, which no grade depends on."""
    names = ", ".join(row.shown_name for row in rows[:5])
    more = f" and {len(rows) - 5:,} more" if len(rows) > 5 else ""
    markup.note(f"{quantity(len(rows), 'run')}: {names}{more}.")
    shared = [tag for tag in rows[0].summary.tags if all(tag in row.summary.tags for row in rows)]
    present = list(dict.fromkeys(tag for row in rows for tag in row.summary.tags))
    add = st.text_input("Add tags", placeholder="baseline seed-3", help="Single words, parted by spaces or commas.")
    remove = st.multiselect("Take tags away", present, disabled=not present, placeholder="none")
    if len(rows) > 1 and present:
        markup.note(f"All of them have: {', '.join(shared) or 'no tag in common'}.")
    note = _note(rows)
    markup.note("Kept in notes.json of each run: your words, no evidence. No grade depends on them.")
    if st.button("Save", type="primary", icon=":material/save:"):
        _save(rows, NotesEdit(add=split_tags(add), remove=tuple(remove), note=note))


def _note(rows: Sequence[Row]) -> str | None:
    """Draw the field of the note; return None where it is to stay as it is."""
    before = rows[0].summary.note or ""
    if any((row.summary.note or "") != before for row in rows):
        replaced = st.toggle("Replace their notes", help="The notes of these runs differ; they stay unless replaced.")
        written = st.text_area("Note", max_chars=LONGEST_NOTE, disabled=not replaced, height=140)
        return written if replaced else None
    written = st.text_area("Note", value=before, max_chars=LONGEST_NOTE, height=140)
    return None if written == before else written


def _save(rows: Sequence[Row], change: NotesEdit) -> None:
    try:
        change_notes([row.summary.path for row in rows], change, datetime.now(UTC))
    except ProblemError as error:
        problems.show(error.problems)
        return
    reading.look_again()
    st.rerun()
