"""The evidence strip: manifest, eval summary and logs of a run with their state, and the rung on which it stands."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import streamlit as st

from dashboard.shared.charts import foreign_run
from dashboard.shared.parts import markup
from dashboard.shared.parts.markup import safe, words
from dashboard.shared.parts.problems import show as show_problems
from dashboard.shared.session import reading
from dashboard.shared.words import evidence, text
from dashboard.shared.words.grades import GRADES
from dashboard.shared.words.text import glimpse
from dashboard.views.run.logic.excerpt import excerpt
from evidence.index.summary import RunSummary
from evidence.layout import EVAL_SUMMARY, MANIFEST
from evidence.report import DocumentState, document_errors
from evidence.rules.across import CONTRADICTS_COPY
from evidence.run import Run
from schemas.catalog import document_kind, is_rows
from schemas.problems import Problem, pointer_to

_LONGEST = 2000
_LONGEST_NAMES = 200


def strip(summary: RunSummary, run: Run) -> None:
    """Draw the strip."""
    cards = evidence.cards(summary.documents)
    columns = st.columns([3, 3, 4, 5])
    for column, (title, documents) in zip(columns, cards.items(), strict=False):
        with column.container(border=True, height="stretch", gap="xsmall", key=f"evidence_{title.split()[-1].lower()}"):
            _card(title, documents, run)
    with columns[-1].container(border=True, height="stretch", gap="xsmall", key="evidence_ladder"):
        _ladder(summary, is_foreign=run.foreign() is not None)


def _card(title: str, documents: Sequence[DocumentState], run: Run) -> None:
    sign = markup.sign(evidence.MARKS, evidence.mark_of(documents)) if documents else ""
    lines = "".join(_line(document, is_alone=len(documents) == 1) for document in documents)
    small = evidence.schemas_said(documents)
    if view := run.foreign():
        small = ", ".join(dict.fromkeys(name for one in documents for name in foreign_run.files_of(view, one.name)))
    schemas = f"<small>{markup.safe(text.glimpse(small, _LONGEST_NAMES))}</small>"
    st.html(f'<div class="tp-card"><h2>{markup.safe(title)}{sign}</h2>{lines}{schemas}</div>')
    there = [document.name for document in documents if document.is_there and document.name in run.files]
    if not there:
        return
    with st.container(horizontal=True, gap="small"):
        if st.button("View", icon=":material/account_tree:", type="tertiary", key=f"view {title}"):
            st.dialog(title, width="large")(_view)(title, there, run)
        if len(there) == 1:
            _download(run.path, there[0], "Download")
            return
        with st.popover("Download", icon=":material/download:", type="tertiary"):
            for name in there:
                _download(run.path, name, name)


def _line(document: DocumentState, *, is_alone: bool) -> str:
    name = "" if is_alone or not document.schema else f"{markup.safe(document.name)} "
    return f"<p>{name}{markup.safe(evidence.state_of(document))}</p>"


def _download(folder: Path, name: str, label: str) -> None:
    markup.download(label, (folder / name).read_bytes, f"{folder.name}-{name}", type="tertiary", key=f"download {name}")


def _ladder(summary: RunSummary, *, is_foreign: bool) -> None:
    """Draw the grades above each other with this run's rung lit, who raised the run to it, and what lifts it."""
    rungs = "".join(
        f'<li class="{"tp-here" if name == summary.grade else ""}" title="{markup.safe(GRADES[name].meaning)}">'
        f"{GRADES[name].symbol} {markup.safe(name)}</li>"
        for name in evidence.LADDER
    )
    off = "" if summary.grade in evidence.LADDER else markup.sign(GRADES, summary.grade)
    # The reasons are of the last look; the figures below follow the run.
    running = ("Not finished: it is still running.",)
    why = markup.words(" ".join(running if summary.status == "running" else summary.reasons[:3]))
    who = "Raised by somebody you trust:" if summary.grade == "verified" else "Found by the check of this folder alone:"
    lift = evidence.lift_of(summary.grade, is_foreign=is_foreign)
    copied = [one for one in reading.check(summary.path).findings if one.code in CONTRADICTS_COPY]
    if copied:
        who, lift = "Found by comparing the runs of this root:", copied[0].next
    beside = f" · {markup.safe(summary.coverage)}" if summary.coverage else ""
    st.html(
        f'<div class="tp-card"><ol class="tp-ladder" aria-label="Grades, lowest first">{rungs}</ol>{off}'
        f"<p><b>{who}</b> {why}{beside}</p><p><b>What lifts it:</b> {markup.words(lift)}</p></div>"
    )


def _view(title: str, names: Sequence[str], run: Run) -> None:
    """Draw a document as a tree, or the rows of a file that deserve a look; what is wrong is lit in its place."""
    name = names[0]
    if len(names) > 1:
        name = st.segmented_control(title, names, default=names[0], required=True, label_visibility="collapsed")
    found = document_errors(run.path, name, reading.check(run.path).findings)
    st.header(name, anchor=False)
    try:
        if is_rows(document_kind(name) or ""):
            _rows(run.path / name, found)
        else:
            _document(name, run, found)
    except OSError as error:
        markup.note(f"{name} cannot be read: {error.strerror or error}.")
    if unplaced := [one for one in found if one.pointer is None and one.line is None]:
        show_problems(unplaced)


def _document(name: str, run: Run, found: Sequence[Problem]) -> None:
    value = {MANIFEST: run.manifest, EVAL_SUMMARY: run.eval_summary}.get(name)
    if value is not None:
        st.html(tree(value, found))
        return
    _lines(excerpt(run.path / name, {one.line for one in found if one.line}, around=3), found)


def _rows(path: Path, found: Sequence[Problem]) -> None:
    wrong = {one.line for one in found if one.line is not None}
    lines = excerpt(path, wrong)
    markup.note("The rows that are wrong." if wrong else "The first rows; Download has all of them.")
    for number, line in lines:
        here = [one for one in found if one.line == number]
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            _lines([(number, line)], here)
            continue
        st.html(f'<p class="tp-sub">Line {number:,}</p>{tree(value, here)}')


def _lines(lines: Sequence[tuple[int, str]], found: Sequence[Problem]) -> None:
    """Draw lines of a text that is not a document, the wrong ones lit."""
    said = ""
    for number, line in lines:
        here = [one for one in found if one.line == number]
        told = "".join(f'<p class="tp-lit">✕ {markup.safe(one.code)}: {markup.words(one.what)}</p>' for one in here)
        shown = markup.safe(text.glimpse(line, _LONGEST))
        said += f"<div{' class=tp-lit' if here else ''}><b>{number:,}</b> {shown}</div>{told}"
    st.html(f'<div class="tp-tree">{said}</div>')


_MOST_NODES = 3_000
_DEEPEST = 40
_LONGEST_VALUE = 400


def tree(value: object, problems: Sequence[Problem]) -> str:
    """Return a document as HTML: groups fold, those on the way to a problem are open, its value is lit.

    A pointer to what is missing lights the group in which it is missing.
    """
    lit: dict[str, list[Problem]] = {}
    for problem in problems:
        if problem.pointer is not None:
            lit.setdefault(_nearest(value, problem.pointer), []).append(problem)
    left = iter(range(_MOST_NODES))
    return f'<div class="tp-tree">{"".join(_node("", value, "", lit, left, depth=0))}</div>'


def _nearest(value: object, pointer: str) -> str:
    """Return the longest beginning of a pointer at which the document has a value."""
    path: list[str | int] = []
    for step in pointer.split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict) and key in value:
            value = value[key]
            path.append(key)
        elif isinstance(value, list) and key.isdecimal() and int(key) < len(value):
            value = value[int(key)]
            path.append(int(key))
        else:
            break
    return pointer_to(path)


def _node(
    key: str, value: object, pointer: str, lit: Mapping[str, Sequence[Problem]], left: Iterator[int], *, depth: int
) -> Iterator[str]:
    if next(left, None) is None:
        return
    found = lit.get(pointer, ())
    said = "".join(f'<p class="tp-lit">✕ {safe(one.code)}: {words(one.what)}</p>' for one in found)
    name = f"<b>{safe(glimpse(key, _LONGEST_VALUE))}</b> " if key else ""
    if not isinstance(value, dict | list) or not value or depth >= _DEEPEST:
        shown = f"<div{' class=tp-lit' if found else ''}>{name}{safe(_as_text(value))}</div>"
        yield f"{shown}{said}"
        return
    leads = depth == 0 or bool(found) or any(other.startswith(f"{pointer}/") for other in lit)
    size = f"{len(value)} {'values' if isinstance(value, dict) else 'items'}"
    yield f'<details{" open" if leads else ""}><summary>{name}<span class="tp-dim">{size}</span></summary>{said}'
    children: Any = value.items() if isinstance(value, dict) else enumerate(value)
    for child, inside in children:
        yield from _node(str(child), inside, pointer + pointer_to([child]), lit, left, depth=depth + 1)
    yield "</details>"


def _as_text(value: object) -> str:
    if isinstance(value, str):
        return glimpse(value, _LONGEST_VALUE)
    if isinstance(value, dict | list):
        return "…" if value else "none"
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    return str(value)
