"""Words for the documents of a run and the ladder of grades: marks, states, and how to reach a higher grade."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from dashboard.shared.words.grades import Sign, Tone
from evidence.grade import GRADES as GRADE_NAMES, GradeName
from evidence.report import CARDS, IN_THEIR_PLACE, LOGS_CARD, MANIFEST_CARD, SUMMARY_CARD, DocumentState, Seal
from schemas import formats
from schemas.formats import quantity

MARKS: Mapping[str, Sign] = {
    "valid": Sign("✓", "good", "Valid, and nothing contradicts it."),
    "wrong": Sign("✕", "bad", "It has errors, or is not the file that the run wrote."),
    "missing": Sign("–", "quiet", "It is missing."),
    "another tool's": Sign("≈", "fair", "Figures of another tool; they follow no schema."),
}
_SEALS: Mapping[Seal, str] = {
    "matches": "hash ✓ matches",
    "differs": "hash ✕ differs",
    "not listed": "hash – not in the manifest",
    "not stated": "hash – not stated",
    "not sealed": "hash – written when the run ends",
    "not checked": "hash – not checked: no valid manifest",
}
_LETTERS: Mapping[str, str] = {MANIFEST_CARD: "M", SUMMARY_CARD: "E", LOGS_CARD: "L"}
LADDER: tuple[GradeName, ...] = tuple(reversed(GRADE_NAMES[: GRADE_NAMES.index("template") + 1]))
"""The grades from lowest to highest; a contradictory run is not on the ladder."""

LIFTS: Mapping[GradeName, str] = {
    "verified": "This is the highest grade.",
    "consistent": "Replay the run here, or get a signed receipt from someone you trust.",
    "measured": "Supply what is missing, or run again with it.",
    "partial": "Finish the run, or restore what is missing.",
    "template": "Train: nothing was measured yet.",
    "contradictory": "Restore the files that the run wrote. View shows where each contradiction is.",
    "not a run": "Choose a folder that a run wrote.",
}
"""How a run of a grade can reach a higher one."""
_LIFTS_FOREIGN = (
    "Run the same training with trainproof. Runs of other tools have neither hashes nor rows to recompute from."
)


def cards(documents: Sequence[DocumentState]) -> dict[str, list[DocumentState]]:
    """Group documents by the card that shows them."""
    by_name = {document.name: document for document in documents}
    return {
        title: [by_name[name] for name in (*CARDS[title], *IN_THEIR_PLACE[title]) if name in by_name] for title in CARDS
    }


def merge_marks(documents: Iterable[DocumentState]) -> str:
    """Return the mark of a card: `wrong` if any document is wrong, else the mark of the first existing document."""
    marks = [document.mark for document in documents]
    return "wrong" if "wrong" in marks else next((mark for mark in marks if mark != "missing"), "missing")


def marks(documents: Sequence[DocumentState]) -> tuple[str, ...]:
    """Return marks of manifest, eval summary and logs for a list, such as `M ✓`, `E ✓`, `L ✕`."""
    return tuple(_mark(title, merge_marks(held)) for title, held in cards(documents).items()) if documents else ()


def every_mark() -> dict[str, Tone]:
    """Return each mark that `marks` can return, with its tone."""
    return {_mark(title, mark): sign.tone for title in CARDS for mark, sign in MARKS.items()}


def _mark(title: str, mark: str) -> str:
    return f"{_LETTERS[title]} {MARKS[mark].symbol}"


def brief(documents: Sequence[DocumentState]) -> str:
    """Return the state of a card for a table cell: `✓ valid, 2,831 rows`."""
    mark = merge_marks(documents)
    rows = sum(document.rows or 0 for document in documents)
    text = quantity(sum(document.errors for document in documents), "error") if mark == "wrong" else mark
    return f"{MARKS[mark].symbol} {text}" + (f", {formats.count(rows)} rows" if rows and documents[0].schema else "")


def format_state(document: DocumentState) -> str:
    """Return the state of a document as a line: `✓ valid · 31 rows · hash ✓ matches`."""
    if document.mark == "another tool's":
        return f"≈ {quantity(document.rows or 0, document.name.removesuffix('s'))}, as stated"
    if not document.schema:
        return f"– no {document.name}"
    if document.mark == "missing":
        return "– missing" if document.seal == "differs" else "– not written by this run"
    parts = [f"✕ {quantity(document.errors, 'error')}" if document.errors else "✓ valid"]
    if document.rows is not None:
        parts.append(quantity(document.rows, "row"))
    return " · ".join([*parts, _SEALS[document.seal]])


def format_schemas(documents: Sequence[DocumentState]) -> str:
    """Return the schemas of documents: `run_manifest 1.2`; empty for another tool's run."""
    names = ", ".join(document.schema for document in documents if document.schema)
    if not names or all(document.mark == "missing" for document in documents):
        return names
    return f"{names} {documents[0].version or 'of an unknown version'}"


def advice_for_grade(grade: GradeName, *, is_foreign: bool) -> str:
    """Return how a run can reach a higher grade."""
    return _LIFTS_FOREIGN if is_foreign and grade == "measured" else LIFTS[grade]
