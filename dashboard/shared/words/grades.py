"""Symbols, tones and meanings of grades and statuses. Each has a word and a symbol, so that none depends on colour."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

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
