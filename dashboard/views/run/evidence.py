"""The evidence strip: run manifest, eval summary and logs with their state, and the grade with its reasons."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import streamlit as st

from dashboard.shared import reading
from dashboard.shared.charts import foreign_run
from dashboard.shared.parts import markup
from dashboard.shared.parts.problems import show as show_problems
from dashboard.shared.words import (
    GRADES,
    LADDER,
    MARKS,
    advice_for_grade,
    cards,
    format_schemas,
    format_state,
    glimpse,
    merge_marks,
)
from evidence.bundle.secrets import strip_invisible
from evidence.grade import FOLDER
from evidence.index.summary import RunSummary
from evidence.report import DocumentState, document_errors
from evidence.rules.across import CONTRADICTS_COPY
from evidence.run import Run
from schemas.catalog import ROWS, document_kind
from schemas.problems import Problem

_MAX_NAMES = 200
_MAX_VALUE = 2000
_MAX_LINE = 64 * 1024
_FIRST_LINES = 3
_MAX_LINES = 20
_LINES_AROUND = 3


def draw_evidence(summary: RunSummary, run: Run) -> None:
    """Draw a card for each document, and one for the grade."""
    columns = st.columns([3, 3, 4, 5])
    for column, (title, documents) in zip(columns, cards(summary.documents).items(), strict=False):
        with column.container(border=True, height="stretch", gap="xsmall", key=f"evidence_{title.split()[-1].lower()}"):
            _draw_card(title, documents, run)
    with columns[-1].container(border=True, height="stretch", gap="xsmall", key="evidence_ladder"):
        _draw_grade(summary, is_foreign=run.foreign() is not None)


def _draw_card(title: str, documents: Sequence[DocumentState], run: Run) -> None:
    sign = markup.sign(MARKS, merge_marks(documents)) if documents else ""
    lines = ""
    for document in documents:
        name = f"{markup.safe(document.name)} " if len(documents) > 1 and document.schema else ""
        lines += f"<p>{name}{markup.safe(format_state(document))}</p>"
    small = format_schemas(documents)
    if view := run.foreign():
        small = ", ".join(dict.fromkeys(name for one in documents for name in foreign_run.list_files(view, one.name)))
    small = markup.safe(glimpse(small, _MAX_NAMES))
    st.html(f'<div class="tp-card"><h2>{markup.safe(title)}{sign}</h2>{lines}<small>{small}</small></div>')
    names = [document.name for document in documents if document.is_there and document.name in run.files]
    if names and st.button("View", icon=":material/account_tree:", type="tertiary", key=f"view {title}"):
        st.dialog(title, width="large")(_draw_documents)(title, names, run)


def _draw_grade(summary: RunSummary, *, is_foreign: bool) -> None:
    """Draw the ladder of grades, the reasons of the grade, and how to reach the next one."""
    grade = summary.grade
    items = "".join(
        f'<li class="{"tp-here" if name == grade else ""}" title="{markup.safe(GRADES[name].meaning)}">'
        f"{GRADES[name].symbol} {markup.safe(name)}</li>"
        for name in LADDER
    )
    off = "" if grade in LADDER else markup.sign(GRADES, grade)
    scope = "judged by its files" if summary.scope == FOLDER else summary.scope
    # The reasons are as old as the list of runs, and those of a running run change with every row.
    reasons = " ".join(summary.reasons[:3]) if summary.status != "running" else "The run has not finished."
    lines = f"<p><b>Why {markup.safe(grade)}, {markup.safe(scope)}:</b> {markup.words(reasons)}</p>"
    if grade != LADDER[-1]:
        copies = [one for one in reading.check(summary.path).findings if one.code in CONTRADICTS_COPY]
        advice = copies[0].next if copies else advice_for_grade(grade, is_foreign=is_foreign)
        following = f"To reach {LADDER[LADDER.index(grade) + 1]}:" if grade in LADDER else "Next:"
        lines += f"<p><b>{following}</b> {markup.words(advice)}</p>"
    ladder = f'<ol class="tp-ladder" aria-label="Grades, lowest first">{items}</ol>'
    st.html(f'<div class="tp-card">{ladder}{off}{lines}</div>')


def _draw_documents(title: str, names: Sequence[str], run: Run) -> None:
    name = names[0]
    if len(names) > 1:
        name = st.segmented_control(title, names, default=names[0], required=True, label_visibility="collapsed")
    errors = document_errors(run.path, name, reading.check(run.path).findings)
    with st.container(horizontal=True, vertical_alignment="center"):
        st.header(name, anchor=False)
        markup.download("Download", (run.path / name).read_bytes, f"{run.path.name}-{name}", type="tertiary")
    left, right = st.columns([3, 2]) if errors else (st.container(), st.empty())
    with left:
        _draw_content(name, run, errors)
    with right:
        show_problems(errors)


def _draw_content(name: str, run: Run, errors: Sequence[Problem]) -> None:
    """Draw a document as a tree. Of rows, and of a document that is not JSON, draw the wrong or the first lines."""
    if document := run.raw(name):
        st.json(_masked(document), expanded=2)
        return
    try:
        around = 0 if document_kind(name) in ROWS else _LINES_AROUND
        lines = excerpt(run.path / name, {one.line for one in errors if one.line}, around=around)
    except OSError as error:
        markup.note(f"{name} cannot be read: {error.strerror or error}.")
        return
    st.code("\n".join(f"{number:>6}  {_masked(line)}" for number, line in lines), language=None, wrap_lines=True)


def excerpt(path: Path, wrong: Collection[int], *, around: int = 0) -> Sequence[tuple[int, str]]:
    """Return the wrong lines of a file and those `around` each with their numbers, or the first lines if none is wrong.

    At most 20 wrong lines, and 64 KiB of each line, are returned.

    Raises:
        OSError: The file cannot be read.
    """
    first = sorted(wrong)[:_MAX_LINES]
    wanted = {line for number in first for line in range(number - around, number + around + 1)}
    wanted = wanted or set(range(1, _FIRST_LINES + 1))
    with path.open("rb") as file:
        lines = enumerate(itertools.islice(file, max(wanted)), start=1)
        found = [(number, line[:_MAX_LINE]) for number, line in lines if number in wanted]
    return [(number, line.decode("utf-8", "replace").rstrip("\r\n")) for number, line in found]


def _masked(value: Any) -> Any:
    """Return a JSON value with long strings shortened and secrets in strings masked."""
    if isinstance(value, dict):
        return {_masked(key): _masked(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_masked(inner) for inner in value]
    return glimpse(strip_invisible(value), _MAX_VALUE) if isinstance(value, str) else value
