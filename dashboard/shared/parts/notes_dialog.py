"""Dialog for the tags and the note of runs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import streamlit as st

from dashboard.shared.parts import markup, problems
from dashboard.shared.session import reading, state
from evidence.bundle.secrets import strip_invisible
from evidence.index.summary import RunSummary
from evidence.notes import LONGEST_NOTE, NotesEdit, change_notes, split_tags
from schemas.formats import quantity
from schemas.problems import ProblemError


@st.dialog("Tags and note", width="medium", on_dismiss="rerun")
def edit(runs: Sequence[RunSummary]) -> None:
    """Draw the form, which writes notes.json of each run."""
    state.open_dialog()
    names = ", ".join(strip_invisible(run.path.name) for run in runs[:5])
    more = f" and {len(runs) - 5:,} more" if len(runs) > 5 else ""
    markup.note(f"{quantity(len(runs), 'run')}: {names}{more}.")
    shared = [tag for tag in runs[0].tags if all(tag in run.tags for run in runs)]
    present = list(dict.fromkeys(tag for run in runs for tag in run.tags))
    add = st.text_input("Add tags", placeholder="baseline seed-3", help="Single words, separated by spaces or commas.")
    remove = st.multiselect("Remove tags", present, disabled=not present, placeholder="none")
    if len(runs) > 1 and present:
        markup.note(f"All of them have: {', '.join(shared) or 'no tag in common'}.")
    note = _note(runs)
    markup.note("Stored in notes.json of each run. Grades do not depend on it.")
    if st.button("Save", type="primary", icon=":material/save:"):
        _save(runs, NotesEdit(add=split_tags(add), remove=tuple(remove), note=note))


def _note(runs: Sequence[RunSummary]) -> str | None:
    """Draw the field of the note, and return None to keep the notes."""
    before = runs[0].note or ""
    if any((run.note or "") != before for run in runs):
        replaced = st.toggle("Replace their notes", help="The notes of these runs differ.")
        written = st.text_area("Note", max_chars=LONGEST_NOTE, disabled=not replaced, height=140)
        return written if replaced else None
    written = st.text_area("Note", value=before, max_chars=LONGEST_NOTE, height=140)
    return None if written == before else written


def _save(runs: Sequence[RunSummary], change: NotesEdit) -> None:
    try:
        change_notes([run.path for run in runs], change, datetime.now(UTC))
    except ProblemError as error:
        problems.show(error.problems)
        return
    reading.look_again()
    st.rerun()
