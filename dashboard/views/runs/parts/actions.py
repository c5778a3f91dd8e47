"""What can be done with the chosen runs, above the table; what needs a chosen run appears with it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import streamlit as st

from dashboard.shared.parts import markup, notes_dialog, problems
from dashboard.shared.parts.gate import may_operate
from dashboard.shared.session import reading, state
from dashboard.shared.tables import runs_table
from dashboard.shared.tables.run_rows import Row
from dashboard.views.runs.parts import check_dialog, keys
from dashboard.views.runs.parts.grid import clear
from evidence.notes import NotesEdit, change_notes
from schemas.formats import quantity
from schemas.problems import ProblemError

_OPEN, _PACKAGE = "open_chosen", "package_chosen"
_PAGES = {_OPEN: state.RUN, keys.COMPARE: state.COMPARE, _PACKAGE: state.PACKAGE}
"""Where each button leads, by its key."""
_CSV = "Every run that is listed, with these columns."
_DONE = "archived or restored last"


@dataclass(frozen=True, kw_only=True)
class _LastArchived:
    """The runs that were archived or restored last, so that it can be undone where it was done."""

    runs: tuple[Path, ...]
    archive: bool


def follow(names: Sequence[str]) -> None:
    """Open the page whose button was pressed, before anything of this one is drawn again.

    Without a chosen run (their folders went, or the ticks) the reader stays here.
    """
    page = next((page for key, page in _PAGES.items() if st.session_state.get(key)), None)
    if page is not None and names:
        state.go(page, **({"run": names[0]} if page is state.RUN else {"runs": names}))


def show(picked: Sequence[Row], listed: Sequence[Row], same: Sequence[str], *, total: int) -> None:
    """Draw how many runs are chosen and shown, and the buttons for those that are chosen.

    `same` is what every row states, and no column.
    """
    with st.container(horizontal=True, vertical_alignment="center", key="runs_actions"):
        if picked:
            _choose(picked)
        _describe(picked, listed, total, f" The same in every row: {', '.join(same)}." if same else "")


def tools(picked: Sequence[Row], listed: Sequence[Row], columns: Sequence[runs_table.Column]) -> None:
    """Draw what can be done with all listed runs, below the table: check them, have them as CSV; and the keys."""
    with st.container(horizontal=True, vertical_alignment="center", key="runs_tools"):
        if st.button(
            "Check",
            icon=":material/fact_check:",
            help="Checks the chosen runs, or all listed runs, against their own evidence.",
        ):
            check_dialog.check([row.summary.path for row in picked or listed], asked=time.monotonic_ns())
        markup.download("CSV", lambda: runs_table.as_csv(listed, columns), "runs.csv", mime="text/csv", help=_CSV)
        keys.popover()


def _choose(picked: Sequence[Row]) -> None:
    if len(picked) == 1:
        st.button("Open", icon=":material/show_chart:", type="primary", key=_OPEN)
    else:
        st.button("Compare", icon=":material/compare_arrows:", type="primary", key=keys.COMPARE)
    st.button("Package", icon=":material/inventory_2:", key=_PACKAGE)
    if may_operate():
        if st.button("Tags and note", icon=":material/sell:"):
            notes_dialog.edit(picked)
        _archiving(picked)


def _describe(picked: Sequence[Row], listed: Sequence[Row], total: int, same: str) -> None:
    done: _LastArchived | None = st.session_state.get(_DONE)
    if picked:
        st.session_state.pop(_DONE, None)
        elsewhere = len(picked) - len({row.name for row in picked} & {row.name for row in listed})
        more = f", {elsewhere:,} of them not in this list" if elsewhere else ""
        st.button("Choose none", on_click=clear, type="tertiary")
        markup.note(f"{len(picked):,} chosen{more}; {len(listed):,} of {total:,} shown.{same}")
    elif done is not None:
        what = "archived" if done.archive else "restored"
        markup.note(f"{quantity(len(done.runs), 'run')} {what}; {len(listed):,} of {total:,} shown.{same}")
        if st.button("Undo", icon=":material/undo:", type="tertiary") and _archive(done.runs, archive=not done.archive):
            del st.session_state[_DONE]
            st.rerun()
    else:
        markup.note(f"Click a name; tick rows to compare, package, tag. {len(listed):,} of {total:,} shown.{same}")


def _archiving(picked: Sequence[Row]) -> None:
    """Draw the button that archives the chosen runs, or restores them where all of them are archived."""
    restore = all(row.summary.archived for row in picked)
    icon = ":material/unarchive:" if restore else ":material/archive:"
    explained = "Takes runs out of this list, or back into it. Nothing is deleted."
    if not st.button("Restore" if restore else "Archive", icon=icon, help=explained):
        return
    # What was archived before stays so when this is undone.
    runs = tuple(row.summary.path for row in picked if row.summary.archived is restore)
    if _archive(runs, archive=not restore):
        st.session_state[_DONE] = _LastArchived(runs=runs, archive=not restore)
        clear()
        st.rerun()


def _archive(runs: Sequence[Path], *, archive: bool) -> bool:
    """Archive or restore runs; where that cannot be done, report why and return False."""
    try:
        change_notes(runs, NotesEdit(archive=archive), datetime.now(UTC))
    except ProblemError as error:
        problems.show(error.problems)
        return False
    reading.look_again()
    return True
