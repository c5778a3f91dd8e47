"""Make text from outside harmless: run names, notes, logs and model outputs are written by strangers.

Text in a Markdown command of Streamlit goes through `plain`; text in HTML goes through `html.escape`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, tzinfo
from typing import Any, Literal

import pandas as pd

from evidence.bundle.secrets import hide_secrets, strip_invisible
from evidence.grade import GRADES as GRADE_NAMES
from evidence.grade import NEXT_STEPS, GradeName
from evidence.report import CARDS, IN_THEIR_PLACE, DocumentState, Seal
from schemas.formats import NOTHING, quantity
from schemas.reading import get_str, parse_time

_MARKDOWN = re.compile(r"([\\`*_{}\[\]()<>#+!|~$:^=.-])")
_MAX_SECRET = 8192
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def plain(text: str) -> str:
    r"""Escape text for Markdown, on one line: `*a*` becomes `\*a\*`.

    Colons, dollars and brackets are escaped too: Streamlit gives `:red[…]`, `:material/…:` and `$…$` a meaning.
    """
    return _MARKDOWN.sub(r"\\\1", strip_invisible(text).replace("\n", " "))


def shorten(text: str, length: int) -> str:
    """Return at most `length` characters, the last one an ellipsis if the text is longer."""
    return text if len(text) <= length else text[: length - 1] + "…"


def glimpse(text: str, length: int) -> str:
    """Return the first `length` characters with secrets masked; the rest of a long text is not searched."""
    # A secret that begins in the part that is shown must be seen whole to be recognized.
    return shorten(hide_secrets(text[: length + _MAX_SECRET]), length)


def both_ends(text: str, length: int) -> str:
    """Return `length` characters from the beginning and the end of a text, with secrets masked."""
    if len(text) <= length:
        return hide_secrets(text)
    first, last = length // 2, length - length // 2
    beginning = hide_secrets(text[: first + _MAX_SECRET])[:first]
    end = hide_secrets(text[-last - _MAX_SECRET :])[-last:]
    return f"{beginning}\n… {len(text) - length:,} characters left out …\n{end}"


def csv_cell(value: object) -> object:
    """Return a cell that a spreadsheet does not take for a formula: `=1+1` becomes `'=1+1`."""
    if not isinstance(value, str):
        return value
    whole = value.encode("utf-8", "backslashreplace").decode()
    return f"'{whole}" if whole.startswith(_FORMULA) else whole


def csv_text(frame: pd.DataFrame) -> str:
    """Return a table as CSV without formulas; tuples are joined by spaces."""
    joined = frame.astype(object).map(lambda cell: " ".join(map(str, cell)) if isinstance(cell, tuple) else cell)
    return joined.map(csv_cell).rename(columns=csv_cell).to_csv(index=False)


Tone = Literal["good", "fair", "poor", "bad", "quiet"]


@dataclass(frozen=True)
class Sign:
    """Symbol, tone (a colour of the theme) and meaning of a word."""

    symbol: str
    tone: Tone
    meaning: str


GRADES: Mapping[str, Sign] = {
    "verified": Sign(
        "✓", "good", "Consistent, and someone you trust reproduced its score and training, or saw it run."
    ),
    "consistent": Sign(
        "●",
        "fair",
        "Finished; all documents are valid, all hashes match, every number can be recomputed, the code is known. "
        "Not yet reproduced by anyone else.",
    ),
    "measured": Sign("◐", "fair", "Real measurements, but something that consistent requires is missing."),
    "partial": Sign("◔", "poor", "Some real measurements; the run is unfinished, or documents are missing."),
    "template": Sign("○", "quiet", "No measurements, only nulls or placeholders."),
    "contradictory": Sign("≠", "bad", "Two places state different things about the same fact."),
    "not a run": Sign("∅", "quiet", "A folder with nothing to grade."),
}

STATUSES: Mapping[str, Sign] = {
    "running": Sign("▸", "fair", "Its process is running now."),
    "succeeded": Sign("✓", "good", "All steps were done and the run was sealed."),
    "failed": Sign("✕", "bad", "It ended with an error."),
    "cancelled": Sign("■", "quiet", "A user stopped it."),
    "interrupted": Sign("‖", "poor", "A signal, a time limit or a kill stopped it; it may be resumed."),
}

JOBS: Mapping[str, Sign] = {
    **STATUSES,
    "waiting": Sign("…", "quiet", "It starts when the jobs before it have ended."),
    "stopping": Sign("■", "poor", "It is stopping and sealing its run."),
    "refused": Sign("✕", "bad", "It does not fit, or the device is missing."),
    "lost": Sign("?", "bad", "Its process ended without an exit code; it was killed."),
    "unsealed": Sign("?", "poor", "You did not queue it on this machine, so it is not started; Retry starts it."),
}

UNKNOWN = Sign("?", "quiet", "The run does not state it.")


def label(signs: Mapping[str, Sign], word: str | None) -> str:
    """Return symbol and word, such as `✓ verified`; a word without a sign gets a question mark."""
    return f"{signs.get(word or '', UNKNOWN).symbol} {word or 'unknown'}"


METHODS: Mapping[str, str] = {
    "closed_form": "estimated by formula",
    "compiler": "read from the compiled program",
    "extrapolated": "compiled with fewer layers and extrapolated",
}
"""How the memory of a plan was determined."""

VERDICTS: Mapping[str, Sign] = {
    "fits": Sign("✓", "good", "It needs less memory than available."),
    "tight": Sign("!", "poor", "It may run out of memory: with the plan's error, it needs more than available."),
    "does not fit": Sign("✕", "bad", "It needs more memory than available, so it will not be started."),
    "unsupported": Sign("∅", "quiet", "The device does not support this configuration."),
    "unknown": Sign("?", "poor", "The memory of the device is unknown."),
}

PROGRAMS: Mapping[str, str] = {
    "start": "Start",
    "train": "Train step",
    "decode": "Decoding",
    "rollout": "Roll-outs",
    "export": "Export",
    "prepare": "Loading and compiling",
    "save": "Saving",
}
"""Programs of a plan, and phases of a run around them."""

PARTS: Mapping[str, str] = {
    "params": "parameters",
    "opt_state": "optimizer state",
    "layer_inside": "activations in a layer",
    "layer_inputs": "inputs of layers",
    "layer_weights": "weights of a layer",
    "converted": "numbers in a wider type",
    "second_state": "second copy of the state",
    "key_value_cache": "key-value cache",
    "cache": "key-value cache",
}


def get_verdict(document: Mapping[str, Any] | None, *path: str) -> str:
    """Return the verdict at a path as a key of `VERDICTS`, or `unknown`."""
    word = (get_str(document, *path) or "unknown").replace("_", " ")
    return word if word in VERDICTS else "unknown"


def get_method(document: Mapping[str, Any] | None) -> str:
    """Return how a figure was determined, in words, or an empty text if the document does not say."""
    return METHODS.get(get_str(document, "method") or "", "")


def part_name(name: str | None) -> str:
    """Return the name of a part of the memory: `opt_state` is `optimizer state`."""
    return PARTS.get(name or "", (name or "?").replace("_", " "))


def program_name(name: str | None) -> str:
    """Return the name of a program: `train` is `Train step`."""
    return PROGRAMS.get(name or "", (name or "?").replace("_", " ").capitalize())


MARKS: Mapping[str, Sign] = {
    "valid": Sign("✓", "good", "Valid, and nothing contradicts it."),
    "wrong": Sign("✕", "bad", "It has errors, or is not the file that the run wrote."),
    "missing": Sign("–", "quiet", "It is missing."),
    "another tool's": Sign("≈", "fair", "Figures from another tool, without a schema."),
}
_SEALS: Mapping[Seal, str] = {
    "matches": "hash ✓ matches",
    "differs": "hash ✕ differs",
    "not listed": "hash – not in the manifest",
    "not stated": "hash – not stated",
    "not sealed": "hash – written when the run ends",
    "not checked": "hash – not checked: no valid manifest",
}
_MARK_WORDS = {"valid": "valid", "wrong": "invalid", "missing": "missing", "another tool's": "of another tool"}
LADDER: tuple[GradeName, ...] = tuple(reversed(GRADE_NAMES[: GRADE_NAMES.index("template") + 1]))
"""The grades from lowest to highest; a contradictory run is not on the ladder."""


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
    """Return the states of manifest, eval summary and logs for a list: `✓ all valid`, or those that are not valid."""
    found = {title: merge_marks(held) for title, held in cards(documents).items()} if documents else {}
    if len(set(found.values())) == 1:
        found = {"all": next(iter(found.values()))}
    return tuple(_mark(title, mark) for title, mark in found.items() if mark != "valid" or title == "all")


def every_mark() -> dict[str, Tone]:
    """Return each text that `marks` can return, with its tone."""
    return {_mark(title, mark): sign.tone for title in ("all", *CARDS) for mark, sign in MARKS.items()}


def _mark(title: str, mark: str) -> str:
    return f"{MARKS[mark].symbol} {title.lower()} {_MARK_WORDS[mark]}"


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
    if is_foreign and grade == "measured":
        return "Run the same training with trainproof. Other tools record no hashes, and no rows to recompute from."
    return NEXT_STEPS[grade]


def date_and_time(text: str | None, zone: tzinfo = UTC) -> str:
    """Format a stated time to the second: `2026-11-20 15:30:12`."""
    time = parse_time(text or "")
    return NOTHING if time is None else f"{time.astimezone(zone):%Y-%m-%d %H:%M:%S}"
