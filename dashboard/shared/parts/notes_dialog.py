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


def edit(runs: Sequence[RunSummary]) -> None:
    """Open the dialog, which writes notes.json of each run."""
    state.open_dialog()
    _form(runs)


@st.dialog("Tags and note", width="medium", on_dismiss=state.close_dialog)
def _form(runs: Sequence[RunSummary]) -> None:
    names = ", ".join(strip_invisible(run.path.name) for run in runs[:5])
    more = f" and {len(runs) - 5:,} more" if len(runs) > 5 else ""
    markup.note(f"{quantity(len(runs), 'run')}: {names}{more}.")
    shared = [tag for tag in runs[0].tags if all(tag in run.tags for run in runs)]
    present = list(dict.fromkeys(tag for run in runs for tag in run.tags))
    add = st.text_input("Add tags", placeholder="baseline seed-3", help="Single words, separated by spaces or commas.")
    remove = st.multiselect("Remove tags", present, disabled=not present, placeholder="none")
    if len(runs) > 1 and present:
        markup.note(f"Tags in common: {', '.join(shared) or 'none'}.")
    note = _note_field(runs)
    markup.note("Stored in notes.json of each run. Grades do not depend on it.")
    if st.button("Save", type="primary", icon=":material/save:"):
        change = NotesEdit(add=split_tags(add), remove=tuple(remove), note=note)
        try:
            change_notes([run.path for run in runs], change, datetime.now(UTC))
        except ProblemError as error:
            problems.show(error.problems)
            return
        reading.look_again()
        st.rerun()


def _note_field(runs: Sequence[RunSummary]) -> str | None:
    """Draw the field of the note, and return None to keep the notes."""
    before = runs[0].note or ""
    is_same = all((run.note or "") == before for run in runs)
    replaces = is_same or st.toggle("Replace their notes", help="These runs have different notes.")
    text = st.text_area(
        "Note", value=before if is_same else "", max_chars=LONGEST_NOTE, disabled=not replaces, height=140
    )
    return text if replaces and not (is_same and text == before) else None
